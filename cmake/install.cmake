# For C++ programs, the component "development" (a wheel has none of it): headers, static libraries,
# and what find_package(deepfreeze) reads to make the target deepfreeze::deepfreeze.
if(DF_SANITIZE)
  return()  # who links it would need the sanitizer too
endif()
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/deepfreeze)

add_library(df_package INTERFACE)  # "deepfreeze" is the program
target_link_libraries(df_package INTERFACE df_api)
set_target_properties(df_package PROPERTIES EXPORT_NAME deepfreeze)
add_library(deepfreeze::deepfreeze ALIAS df_package)

get_property(libraries GLOBAL PROPERTY df_libraries)
list(REMOVE_ITEM libraries df_cli df_inspect)  # the program's
install(TARGETS df_package df_options ${libraries} EXPORT deepfreezeTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT deepfreezeTargets NAMESPACE deepfreeze:: DESTINATION ${package_dir}
  COMPONENT development)
install(DIRECTORY include/deepfreeze DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT development FILES_MATCHING PATTERN "*.h")

configure_package_config_file(cmake/deepfreezeConfig.cmake.in deepfreezeConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/deepfreezeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/deepfreezeConfig.cmake
  ${PROJECT_BINARY_DIR}/deepfreezeConfigVersion.cmake cmake/deepfreeze_libraries.cmake
  DESTINATION ${package_dir} COMPONENT development)
