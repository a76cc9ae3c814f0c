# Passes if the configuration is right; else names its first fault.
awk '$1 == "listen" && ($2 < 1 || $2 > 65535) { print "listen: " $2 " is no port"; exit 1 }
     $1 == "workers" && $2 !~ /^[0-9]+$/ { print "workers: " $2 " is no number"; exit 1 }
     $1 == "root" && $2 !~ /^\// { print "root: " $2 " is not absolute"; exit 1 }
     $1 == "log" && $2 !~ /^(debug|info|error)$/ { print "log: " $2 " is no level"; exit 1 }' server.conf
