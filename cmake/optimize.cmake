# penstock_optimize(target level): in a release build the target is compiled at this level, such as -O2, instead of CMake's -O3. To be
# called before penstock_precompile.
function(penstock_optimize target level)
  set_target_properties(${target} PROPERTIES PENSTOCK_LEVEL ${level})
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU,Clang,AppleClang>>:${level}>)
endfunction()
