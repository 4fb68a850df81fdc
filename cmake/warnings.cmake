# Warnings for our own targets; errors in the presets of the developers, never for users.
option(PENSTOCK_WARNINGS_AS_ERRORS "Treat warnings as errors" OFF)

function(penstock_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
                                           $<$<BOOL:${PENSTOCK_WARNINGS_AS_ERRORS}>:-Werror>)
endfunction()
