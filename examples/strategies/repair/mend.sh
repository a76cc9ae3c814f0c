# Mends the fault that the checker named. The first attempt was told nothing: it tidies up.
fault=$(sed -n 's/^\([a-z]*\): .* is .*/\1/p' "${FORKPOINT_FEEDBACK:-/dev/null}")
case $fault in
    listen) sed -i 's/^listen .*/listen 8080/' server.conf ;;
    workers) sed -i 's/^workers .*/workers 4/' server.conf ;;
    root) sed -i 's/^root /root \//' server.conf ;;
    log) sed -i 's/^log .*/log debug/' server.conf ;;
    *) echo '# tidy' >> server.conf ;;
esac
