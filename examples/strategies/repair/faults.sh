# How many faults are left.
awk '$1 == "listen" && ($2 < 1 || $2 > 65535) || $1 == "workers" && $2 !~ /^[0-9]+$/ ||
     $1 == "root" && $2 !~ /^\// || $1 == "log" && $2 !~ /^(debug|info|error)$/ { n++ }
     END { print n + 0 }' server.conf
