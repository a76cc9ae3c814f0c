/* io MODE FILE MIB: one pass of I/O over a file in the page cache; prints nanoseconds. The file is made if it is short. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static long long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
    enum { BIG = 1 << 20, SMALL = 4096, OPERATIONS = 100000 };
    static char buffer[BIG];
    uint64_t x = 88172645463325252u;
    long long start, size;
    int fd, i, writes, random;

    if (argc != 4)
        return 2;
    writes = strstr(argv[1], "write") != NULL;
    random = strncmp(argv[1], "random", 6) == 0;
    size = atoll(argv[3]) * BIG;
    fd = open(argv[2], writes ? O_RDWR | O_CREAT : O_RDONLY, 0644);
    if (fd < 0)
        fail(argv[2]);
    if (writes && random)
        for (i = 0; i < size / BIG; i++)
            if (pwrite(fd, buffer, BIG, (off_t)i * BIG) != BIG)
                fail("write");
    start = now();
    if (random) {
        for (i = 0; i < OPERATIONS; i++) {
            off_t at;
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            at = (off_t)(x % (uint64_t)(size / SMALL)) * SMALL;
            if ((writes ? pwrite(fd, buffer, SMALL, at) : pread(fd, buffer, SMALL, at)) != SMALL)
                fail("random");
        }
    } else {
        for (i = 0; i < size / BIG; i++)
            if ((writes ? write(fd, buffer, BIG) : read(fd, buffer, BIG)) != BIG)
                fail("sequential");
    }
    printf("%lld\n", now() - start);
    return 0;
}
