# Runs Doxygen: cmake -DDOXYGEN=... -DDOXYFILE=... -P build.cmake. Whatever it warns of is an error, save one thing: a member of a
# documented class may go without a comment, where its name says it all.
execute_process(COMMAND ${DOXYGEN} ${DOXYFILE} ERROR_VARIABLE warnings RESULT_VARIABLE result)
string(REGEX REPLACE "[^\n]*of (class|struct) [^\n]* is not documented\\.\n" "" warnings "${warnings}")
if(result OR warnings)
  message(FATAL_ERROR "Doxygen (${result}):\n${warnings}")
endif()
