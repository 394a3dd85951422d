# df_precompile(target kind headers...): the headers are compiled once for all targets of a kind,
# within the first of them, where DF_PRECOMPILE names the kind (library, test).
function(df_precompile target kind)
  get_property(first GLOBAL PROPERTY df_precompiled_${kind})
  if(NOT kind IN_LIST DF_PRECOMPILE)
    return()
  elseif(first)
    target_precompile_headers(${target} REUSE_FROM ${first})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
    set_property(GLOBAL PROPERTY df_precompiled_${kind} ${target})
  endif()
endfunction()

# df_module(storage SOURCES a.cc b.cc DEPS base LIBS fmt::fmt TESTS a_test.cc TEST_DEPS df_sim_disk)
#
# One static library per folder, df_<name>, and one test program, <name>_test. DEPS are folders
# and must equal the folder's line in src/LAYERS (tools/tidy.py compares). ONE_THREAD: as below.
function(df_module name)
  cmake_parse_arguments(M "ONE_THREAD" "" "SOURCES;DEPS;LIBS;TESTS;TEST_DEPS" ${ARGN})
  add_library(df_${name} STATIC ${M_SOURCES})
  set_property(GLOBAL APPEND PROPERTY df_libraries df_${name})
  list(TRANSFORM M_DEPS PREPEND df_)
  list(TRANSFORM M_LIBS REPLACE "^fmt::fmt$" ${DF_FMT})
  target_link_libraries(df_${name} PUBLIC df_options ${M_DEPS} ${M_LIBS})
  df_precompile(df_${name} library <algorithm> <chrono> <expected> <filesystem> <fmt/format.h>
    <functional> <map> <memory> <mutex> <optional> <span> <string> <thread> <vector>)
  if(DF_SANITIZE STREQUAL "thread")
    set_target_properties(df_${name} PROPERTIES EXCLUDE_FROM_ALL ON)  # unless a test wants it
  endif()
  if(DF_TESTS AND M_TESTS)
    if(M_ONE_THREAD)
      list(APPEND M_TEST_DEPS ONE_THREAD)
    endif()
    df_test(${name}_test SOURCES ${M_TESTS} LIBS df_${name} ${M_TEST_DEPS})
  endif()
endfunction()

# df_test(name SOURCES ... LIBS ...): a GoogleTest program. ctest knows its cases one by one; under a
# sanitizer, where a process takes a tenth of a second to start, it runs them in four processes, and
# reports/ has the cases. ONE_THREAD: its code starts none, so ThreadSanitizer's build is spared it.
function(df_test name)
  cmake_parse_arguments(T "ONE_THREAD" "" "SOURCES;LIBS" ${ARGN})
  if(T_ONE_THREAD AND DF_SANITIZE STREQUAL "thread")
    return()
  endif()
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_LIBS} df_options nlohmann_json::nlohmann_json
    GTest::gtest_main)
  # A quarter of the time to compile; the code under test, in its library, keeps its own level.
  target_compile_options(${name} PRIVATE -O0)
  # Templates are instantiated once for each source that the compiler sees: all are one.
  set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 0)
  df_precompile(${name} test <algorithm> <chrono> <expected> <filesystem> <fmt/format.h> <fstream>
    <functional> <gtest/gtest.h> <map> <memory> <mutex> <nlohmann/json.hpp> <optional> <random>
    <span> <string> <thread> <vector>)
  get_property(on_demand DIRECTORY PROPERTY EXCLUDE_FROM_ALL)
  if(NOT on_demand AND DF_SANITIZE)
    foreach(part RANGE 3)
      set(report ${PROJECT_BINARY_DIR}/reports/${name}-${part}.xml)
      add_test(NAME ${name}-${part} COMMAND ${name} --gtest_output=xml:${report})
      set_tests_properties(${name}-${part} PROPERTIES TIMEOUT 900
        ENVIRONMENT "GTEST_TOTAL_SHARDS=4;GTEST_SHARD_INDEX=${part}")
    endforeach()
  elseif(NOT on_demand)  # else ctest would miss the program
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
  endif()
endfunction()
