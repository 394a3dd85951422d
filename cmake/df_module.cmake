# df_module(storage SOURCES a.cc b.cc DEPS base LIBS fmt::fmt TESTS a_test.cc TEST_DEPS df_sim_disk)
#
# One static library per folder, df_<name>, and one test program, <name>_test. DEPS are folders
# and must equal the folder's line in src/LAYERS (tools/tidy.py compares).
function(df_module name)
  cmake_parse_arguments(M "" "" "SOURCES;DEPS;LIBS;TESTS;TEST_DEPS" ${ARGN})
  add_library(df_${name} STATIC ${M_SOURCES})
  list(TRANSFORM M_DEPS PREPEND df_)
  target_link_libraries(df_${name} PUBLIC df_options ${M_DEPS} ${M_LIBS})
  if(DF_TESTS AND M_TESTS)
    df_test(${name}_test SOURCES ${M_TESTS} LIBS df_${name} ${M_TEST_DEPS})
  endif()
endfunction()

# df_test(name SOURCES ... LIBS ...): a GoogleTest program whose cases ctest knows one by one.
function(df_test name)
  cmake_parse_arguments(T "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${T_SOURCES})
  target_link_libraries(${name} PRIVATE ${T_LIBS} df_options GTest::gtest_main)
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
endfunction()
