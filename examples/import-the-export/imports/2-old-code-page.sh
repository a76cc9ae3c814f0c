# Quoted fields are understood; the letters are read as an old PC would.
set -e
iconv -f CP437 -t UTF-8 export.csv > export.utf8
sh imports/load.sh export.utf8
rm export.utf8
