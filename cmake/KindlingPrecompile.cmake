# kindling_collect_less(<target>): else GCC searches for garbage many times while it reads LibTorch's headers, where there is none. That
# takes a tenth of its time.
function(kindling_collect_less target)
  target_compile_options(${target} PRIVATE "SHELL:$<$<CXX_COMPILER_ID:GNU>:--param ggc-min-heapsize=600000>")
endfunction()

# kindling_precompile_headers(<target>... [HEADERS <header>...]): compiles the headers (<kindling/kindling.h> if none is named) once for
# all the targets instead of once per source file. The targets need the same compiler options and C++ standard; compilers warn if they differ.
#
# ccache, as the compiler launcher, caches what reads precompiled headers only with the options and settings that are given here.
function(kindling_precompile_headers target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS")
  if(NOT arg_HEADERS)
    set(arg_HEADERS <kindling/kindling.h>)
  endif()
  target_precompile_headers(${target} PRIVATE ${arg_HEADERS})
  foreach(other ${arg_UNPARSED_ARGUMENTS})
    target_precompile_headers(${other} REUSE_FROM ${target})
  endforeach()
  foreach(each ${target} ${arg_UNPARSED_ARGUMENTS})
    kindling_collect_less(${each})
    target_compile_options(${each} PRIVATE
      $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess> "SHELL:$<$<CXX_COMPILER_ID:Clang>:-Xclang -fno-pch-timestamp>")
    get_target_property(launcher ${each} CXX_COMPILER_LAUNCHER)
    if(launcher MATCHES "(^|/)ccache$")
      set_target_properties(${each} PROPERTIES
        CXX_COMPILER_LAUNCHER "env;CCACHE_SLOPPINESS=pch_defines,time_macros;${launcher}")
    endif()
  endforeach()
endfunction()
