# Prints ARGV[1] readings of a sensor: a hundred million and a little, by a small congruential generator.
BEGIN {
    seed = 20240229
    for (i = 0; i < ARGV[1]; i++) {
        seed = (seed * 16807) % 2147483647
        printf "%.6f\n", 100000000 + seed / 2147483647
    }
}
