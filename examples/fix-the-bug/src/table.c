#define _POSIX_C_SOURCE 200809L
/* Counting words: a plain array, searched from its start. */
#include "tally.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    char *word;
    unsigned long count;
};

static struct entry *entries;
static size_t used, room;

int table_add(const char *word)
{
    size_t i;

    for (i = 0; i < used; i++) {
        if (strcmp(entries[i].word, word) == 0) {
            entries[i].count++;
            return 0;
        }
    }
    if (used == room) {
        size_t more = room ? room * 2 : 64;
        struct entry *grown = realloc(entries, more * sizeof *grown);
        if (!grown)
            return -1;
        entries = grown;
        room = more;
    }
    entries[used].word = strdup(word);
    if (!entries[used].word)
        return -1;
    entries[used++].count = 1;
    return 0;
}

static int by_count(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;

    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    return strcmp(a->word, b->word);
}

void table_print(FILE *out, size_t top)
{
    size_t i;

    if (used > 0)
        qsort(entries, used, sizeof *entries, by_count);
    for (i = 0; i < used && i < top; i++)
        fprintf(out, "%lu %s\n", entries[i].count, entries[i].word);
}
