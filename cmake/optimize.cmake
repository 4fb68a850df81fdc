# penstock_optimize(target level): in a release build the target is compiled at this level, such as -O2, instead of CMake's -O3.
function(penstock_optimize target level)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU,Clang,AppleClang>>:${level}>)
endfunction()
