/* For programs that measure. */
#pragma once

#include <stdlib.h>

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* Sorts the values. */
static double median(double* values, int count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return values[count / 2];
}
