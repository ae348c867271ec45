#pragma once

namespace kindling {

// The internal columns of a log with the number of rows whose outputs have a NaN, by stage.
inline constexpr const char* kNanRowsColumns[] = {"train outputs with NaN", "val outputs with NaN",
                                                  "test outputs with NaN"};

}  // namespace kindling
