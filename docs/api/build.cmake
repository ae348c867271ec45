# Runs Doxygen: cmake -DDOXYGEN=... -DDOXYFILE=... -P build.cmake. Its warnings are errors, with three exceptions: a member of a
# documented class may have no comment where its name says enough, and an anchor of a page may be unknown, because Doxygen names
# headings differently from GitHub (tests/docs/links_test.py checks the links of pages), and Doxygen 1.9.4 may take the end of a page's
# fenced code for one too many.
execute_process(COMMAND ${DOXYGEN} ${DOXYFILE} ERROR_VARIABLE warnings RESULT_VARIABLE result)
string(REGEX REPLACE "[^\n]*of (class|struct) [^\n]* is not documented\\.\n" "" warnings "${warnings}")
string(REGEX REPLACE "[^\n]*\\.md:[0-9]+: warning: unable to resolve reference to '[^']*' for \\\\ref command\n" "" warnings
  "${warnings}")
if(result OR warnings)
  message(FATAL_ERROR "Doxygen (${result}):\n${warnings}")
endif()
