/* Cutting a text into words, character by character (UTF-8). */
#include "tally.h"

#define MALFORMED 0xFFFD

/* The next character, or -1 at the end. A malformed sequence is one MALFORMED for each byte that begins nothing. */
static long next_character(FILE *in)
{
    int first = getc(in), more, i;
    long character, least;

    if (first == EOF || first < 0x80)
        return first;
    if (first >= 0xC2 && first <= 0xDF) {
        more = 1, character = first & 0x1F, least = 0x80;
    } else if (first >= 0xE0 && first <= 0xEF) {
        more = 2, character = first & 0x0F, least = 0x800;
    } else if (first >= 0xF0 && first <= 0xF4) {
        more = 3, character = first & 0x07, least = 0x10000;
    } else {
        return MALFORMED;
    }
    for (i = 0; i < more; i++) {
        int c = getc(in);
        if ((c & 0xC0) != 0x80 || c == EOF) {
            if (c != EOF)
                ungetc(c, in);
            return MALFORMED;
        }
        character = character << 6 | (c & 0x3F);
    }
    return character < least || character > 0x10FFFF ? MALFORMED : character;
}

/* Letters of the Latin, Greek and Cyrillic blocks. */
static int is_letter(long c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return 1;
    if (c == 0xAA || c == 0xB5 || c == 0xBA)
        return 1;
    if (c == 0xD7 || c == 0xF7) /* the signs of multiplication and division */
        return 0;
    return (c >= 0xC0 && c <= 0x24F) || (c >= 0x370 && c <= 0x52F && c != 0x37E && c != 0x387);
}

static long lower(long c)
{
    if ((c >= 'A' && c <= 'Z') || (c >= 0xC0 && c <= 0xDE && c != 0xD7))
        return c + 32;
    return c;
}

/* Appends a letter (below U+0800, so at most two bytes) if it fits whole. */
static size_t append(char *word, size_t length, long c)
{
    if (c < 0x80) {
        if (length < WORD_MAX)
            word[length++] = (char)c;
    } else if (length + 1 < WORD_MAX) {
        word[length++] = (char)(0xC0 | c >> 6);
        word[length++] = (char)(0x80 | (c & 0x3F));
    }
    return length;
}

size_t next_word(FILE *in, char *word)
{
    size_t length = 0;
    long c;

    while ((c = next_character(in)) >= 0) {
        if (is_letter(c))
            length = append(word, length, lower(c));
        else if (c == '\'' && length > 0)
            length = append(word, length, c);
        else if (length > 0)
            break;
    }
    /* An apostrophe at the end was a closing quote. */
    while (length > 0 && word[length - 1] == '\'')
        length--;
    word[length] = '\0';
    return length;
}
