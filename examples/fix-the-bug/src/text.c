/* Cutting a text into words. */
#include "tally.h"

#include <ctype.h>

size_t next_word(FILE *in, char *word)
{
    size_t length = 0;
    int c;

    while ((c = getc(in)) != EOF) {
        if (isalpha(c) || (c == '\'' && length > 0)) {
            if (length < WORD_MAX)
                word[length++] = (char)tolower(c);
        } else if (length > 0) {
            break;
        }
    }
    /* An apostrophe at the end was a closing quote. */
    while (length > 0 && word[length - 1] == '\'')
        length--;
    word[length] = '\0';
    return length;
}
