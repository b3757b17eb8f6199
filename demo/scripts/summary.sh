#!/bin/sh
# Prints the lowest and the highest temperature of the readings.
awk -F, 'NR > 1 { if (min == "" || $2 < min) min = $2; if (max == "" || $2 > max) max = $2 }
         END { print "lowest " min " C, highest " max " C" }' data/readings.csv
