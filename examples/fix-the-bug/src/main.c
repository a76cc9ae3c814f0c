/* tally [N]: prints the N (default 10) most frequent words of standard input with their counts. */
#include "tally.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    char word[WORD_MAX + 1];
    long top = 10;

    if (argc > 2 || (argc == 2 && (top = strtol(argv[1], NULL, 10)) <= 0)) {
        fprintf(stderr, "usage: tally [N] < TEXT\n");
        return 2;
    }
    while (next_word(stdin, word) > 0) {
        if (table_add(word) != 0) {
            fprintf(stderr, "tally: out of memory\n");
            return 1;
        }
    }
    if (ferror(stdin)) {
        perror("tally: standard input");
        return 1;
    }
    table_print(stdout, (size_t)top);
    if (fflush(stdout) != 0) {
        perror("tally: standard output");
        return 1;
    }
    return 0;
}
