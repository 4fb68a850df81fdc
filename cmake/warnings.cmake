# Warnings for our own targets; errors in the presets of the developers, never for users.
option(PENSTOCK_WARNINGS_AS_ERRORS "Treat warnings as errors" OFF)

function(penstock_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow
                                           $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
                                           # GCC 12 sees overlaps in std::string's operator+ that are not there (GCC PR105651).
                                           $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                                           $<$<BOOL:${PENSTOCK_WARNINGS_AS_ERRORS}>:-Werror>)
endfunction()
