/*
 * stats: mean, standard deviation and median of a column of numbers, one on a line.
 *
 * The sums are compensated (Kahan's way), since the numbers of a measurement often sit far from zero:
 * the plain sum of a million of them loses the digits that the answer is about. A compiler that is allowed to treat
 * floating point as if it were arithmetic removes the compensation, silently: that is what the tests are for.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sum {
    double total;
    double lost;
};

static void add(struct sum *s, double x)
{
    double y = x - s->lost;
    double t = s->total + y;
    s->lost = (t - s->total) - y;
    s->total = t;
}

static double mean(const double *x, size_t n)
{
    struct sum s = {0, 0};
    for (size_t i = 0; i < n; i++)
        add(&s, x[i]);
    return s.total / (double)n;
}

static double deviation(const double *x, size_t n, double m)
{
    struct sum s = {0, 0};
    for (size_t i = 0; i < n; i++)
        add(&s, (x[i] - m) * (x[i] - m));
    return sqrt(s.total / (double)(n - 1));
}

/* Hoare's selection: the k-th smallest, in place. */
static double nth(double *x, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;
    while (low < high) {
        double pivot = x[low + (high - low) / 2];
        size_t i = low, j = high;
        while (i <= j) {
            while (x[i] < pivot)
                i++;
            while (x[j] > pivot)
                j--;
            if (i <= j) {
                double t = x[i];
                x[i] = x[j];
                x[j] = t;
                i++;
                if (j == 0)
                    break;
                j--;
            }
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return x[k];
}

static double *read_all(FILE *f, size_t *count)
{
    size_t n = 0, room = 4096;
    double *x = malloc(room * sizeof *x);
    char line[128];
    while (x && fgets(line, sizeof line, f)) {
        char *end;
        errno = 0;
        double v = strtod(line, &end);
        if (end == line || errno || !(*end == '\n' || *end == '\0')) {
            fprintf(stderr, "stats: line %zu is not a number\n", n + 1);
            exit(1);
        }
        if (n == room) {
            double *more = realloc(x, 2 * room * sizeof *x);
            if (!more)
                free(x);
            else
                room *= 2;
            x = more;
            if (!x)
                break;
        }
        x[n++] = v;
    }
    if (!x || ferror(f)) {
        fprintf(stderr, "stats: %s\n", x ? "cannot read" : "out of memory");
        exit(1);
    }
    *count = n;
    return x;
}

int main(int argc, char **argv)
{
    /* How often everything is computed: a benchmark wants to measure more than the reading. */
    long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 1;
    size_t n;
    double *x = read_all(stdin, &n);
    if (n < 2 || rounds < 1) {
        fprintf(stderr, "stats: at least two numbers and one round are needed\n");
        return 1;
    }
    double m = 0, d = 0;
    for (long i = 0; i < rounds; i++) {
        m = mean(x, n);
        d = deviation(x, n, m);
        x[0] = nextafter(nextafter(x[0], INFINITY), -INFINITY);
    }
    printf("n %zu\nmean %.9f\ndeviation %.9f\nmedian %.9f\n", n, m, d, nth(x, n, (n - 1) / 2));
    free(x);
    return 0;
}
