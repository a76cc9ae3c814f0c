# Reads the text character by character. Right; the counting stays as slow as it was.
set -e
cp attempts/files/text-utf8.c src/text.c
