// What libpenstock_scalapack_ilp64 needs of a ScaLAPACK with integers of 64 bits, over Debian's, which has 32. It looks
// that up by itself, in the library that SCALAPACK names, so that no other routine is visible in the process.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void* theirs(const char* name) {
  void* const library = dlopen(SCALAPACK, RTLD_NOW | RTLD_LOCAL);
  void* const found = library == NULL ? NULL : dlsym(library, name);
  if (found == NULL) {
    fprintf(stderr, "%s: %s\n", name, dlerror());
    abort();
  }
  return found;
}

static void narrow(const int64_t* wide, int count, int32_t* result) {
  for (int i = 0; i < count; ++i) result[i] = (int32_t)wide[i];
}

void blacs_gridinfo_(const int64_t* context, int64_t* rows, int64_t* columns, int64_t* row, int64_t* column) {
  void (*const call)(const int32_t*, int32_t*, int32_t*, int32_t*, int32_t*) = theirs("blacs_gridinfo_");
  const int32_t given = (int32_t)*context;
  int32_t info[4];
  call(&given, &info[0], &info[1], &info[2], &info[3]);
  *rows = info[0];
  *columns = info[1];
  *row = info[2];
  *column = info[3];
}

void blacs_get_(const int64_t* context, const int64_t* what, int64_t* value) {
  void (*const call)(const int32_t*, const int32_t*, int32_t*) = theirs("blacs_get_");
  const int32_t given[] = {(int32_t)*context, (int32_t)*what};
  int32_t result = 0;
  call(&given[0], &given[1], &result);
  *value = result;
}

void pxerbla_(const int64_t* context, const char* routine, const int64_t* info, size_t length) {
  void (*const call)(const int32_t*, const char*, const int32_t*, size_t) = theirs("pxerbla_");
  const int32_t given[] = {(int32_t)*context, (int32_t)*info};
  call(&given[0], routine, &given[1], length);
}

void pdtran_(const int64_t* m, const int64_t* n, const double* alpha, const void* a, const int64_t* ia,
             const int64_t* ja, const int64_t* desca, const double* beta, void* c, const int64_t* ic, const int64_t* jc,
             const int64_t* descc) {
  void (*const call)(const int32_t*, const int32_t*, const double*, const void*, const int32_t*, const int32_t*,
                     const int32_t*, const double*, void*, const int32_t*, const int32_t*, const int32_t*) =
      theirs("pdtran_");
  const int32_t given[] = {(int32_t)*m, (int32_t)*n, (int32_t)*ia, (int32_t)*ja, (int32_t)*ic, (int32_t)*jc};
  int32_t descriptors[2][11];
  narrow(desca, desca[0] == 2 ? 11 : 9, descriptors[0]);
  narrow(descc, descc[0] == 2 ? 11 : 9, descriptors[1]);
  call(&given[0], &given[1], alpha, a, &given[2], &given[3], descriptors[0], beta, c, &given[4], &given[5],
       descriptors[1]);
}
