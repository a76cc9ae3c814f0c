# Quoted fields are understood, and the letters are what the shop's old system writes.
set -e
iconv -f ISO-8859-1 -t UTF-8 export.csv > export.utf8
sh imports/load.sh export.utf8
rm export.utf8
