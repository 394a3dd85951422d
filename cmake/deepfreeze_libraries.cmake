# deepfreeze::isal and deepfreeze::uring, wherever this machine has them; deepfreeze_missing: those
# that it has not. Read by the build and, installed, by find_package(deepfreeze).
set(deepfreeze_missing)
foreach(library isal uring)
  if(DF_SELF_CONTAINED)
    set(library_name lib${library}.a)
    find_library(DF_LIBRARY_${library} ${library_name})
  else()
    set(library_name lib${library})
    find_library(DF_LIBRARY_${library} ${library})
  endif()
  if(NOT DF_LIBRARY_${library})
    list(APPEND deepfreeze_missing ${library_name})
  elseif(NOT TARGET deepfreeze::${library})
    add_library(deepfreeze::${library} UNKNOWN IMPORTED)
    set_target_properties(deepfreeze::${library} PROPERTIES
      IMPORTED_LOCATION ${DF_LIBRARY_${library}})
  endif()
endforeach()
