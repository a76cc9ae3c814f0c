/* Counting words: a hash table with open addressing, at most half full. */
#define _POSIX_C_SOURCE 200809L
#include "tally.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    char *word; /* NULL: free */
    unsigned long count;
};

static struct entry *slots;
static size_t used, room; /* room is 0 or a power of two */

/* FNV-1a, 64 bits. */
static uint64_t hash(const char *word)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (; *word; word++)
        h = (h ^ (unsigned char)*word) * 0x100000001b3u;
    return h;
}

static struct entry *find(struct entry *in, size_t size, const char *word)
{
    size_t i = (size_t)hash(word) & (size - 1);

    while (in[i].word && strcmp(in[i].word, word) != 0)
        i = (i + 1) & (size - 1);
    return &in[i];
}

static int grow(void)
{
    size_t i, more = room ? room * 2 : 1024;
    struct entry *grown = calloc(more, sizeof *grown);

    if (!grown)
        return -1;
    for (i = 0; i < room; i++) {
        if (slots[i].word)
            *find(grown, more, slots[i].word) = slots[i];
    }
    free(slots);
    slots = grown;
    room = more;
    return 0;
}

int table_add(const char *word)
{
    struct entry *entry;

    if (used * 2 >= room && grow() != 0)
        return -1;
    entry = find(slots, room, word);
    if (!entry->word) {
        entry->word = strdup(word);
        if (!entry->word)
            return -1;
        used++;
    }
    entry->count++;
    return 0;
}

static int by_count(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;

    if (a->count != b->count)
        return a->count < b->count ? 1 : -1;
    return strcmp(a->word, b->word);
}

/* Moves the entries together, so nothing can be added afterwards. */
void table_print(FILE *out, size_t top)
{
    size_t i, n = 0;

    for (i = 0; i < room; i++) {
        if (slots[i].word)
            slots[n++] = slots[i];
    }
    if (n > 0)
        qsort(slots, n, sizeof *slots, by_count);
    for (i = 0; i < n && i < top; i++)
        fprintf(out, "%lu %s\n", slots[i].count, slots[i].word);
}
