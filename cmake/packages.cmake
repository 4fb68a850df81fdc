# penstock_need(found what names): where a library was not found, what it is and what installs it. penstock_check_packages
# ends the configuration for all of them at once; pip prints it, too.
function(penstock_need found what names)
  if(NOT found)
    set_property(GLOBAL APPEND_STRING PROPERTY penstock_missing "\n  ${what}: install ${names}")
  endif()
endfunction()

function(penstock_check_packages)
  get_property(missing GLOBAL PROPERTY penstock_missing)
  if(missing)
    message(FATAL_ERROR "Penstock needs what was not found here:${missing}\n"
                        "What is installed elsewhere is found if CMAKE_PREFIX_PATH names its prefix.")
  endif()
endfunction()
