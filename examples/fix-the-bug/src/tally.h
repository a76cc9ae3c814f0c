/* tally: the most frequent words of a text. What the three parts promise each other. */
#ifndef TALLY_H
#define TALLY_H

#include <stddef.h>
#include <stdio.h>

/* Longest word kept, in bytes without the final zero; what is longer is cut at a character's end. */
#define WORD_MAX 255

/*
 * Reads the next word in lower case (ASCII and Latin-1 letters) into `word`, which holds WORD_MAX + 1 bytes.
 * A word is a run of letters, with apostrophes inside it. The text is UTF-8; a malformed byte separates words.
 * Returns its length, or 0 at the end of the text.
 */
size_t next_word(FILE *in, char *word);

/* Counts one more of `word`. Returns 0, or -1 when memory is exhausted. */
int table_add(const char *word);

/* Prints the `top` most frequent words, the most frequent first, equally frequent ones in byte order. */
void table_print(FILE *out, size_t top);

#endif
