#pragma once

#include <cstddef>

namespace kindling {

// Before each call in the file that record_disk_calls.cpp writes; the bytes of text and more follow.
struct RecordedCallHeader {
  char kind;                           // o(pen) w(rite) t(runcate) s(ync) c(lose) r(ename) u(nlink) m(kdir)
  int descriptor;                      // o, w, t, s, c
  long number;                         // o: flags; t: size
  std::size_t text_bytes, more_bytes;  // o, r, u, m: path; w: what was written; more: r: the new path
};

}  // namespace kindling
