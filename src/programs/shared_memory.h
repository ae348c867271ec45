#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "formats/exported_program.h"

namespace c10 {
struct FunctionSchema;
}

namespace kindling {

// Which values of a program are in one memory, as far as can be said without running it: what is written
// through one of them is seen through the others.
class SharedMemory {
 public:
  // Of a call's results, whose operator has this schema.
  void note(const ProgramNode& node, const c10::FunctionSchema& schema);
  void note_input(const std::string& name, const std::string& memory) { places_[name] = {memory, name}; }

  // Values that are this tensor itself, it included.
  std::vector<std::string> same_as(const std::string& name) const;
  // Values that may have some of its memory, and are another view of it.
  std::vector<std::string> other_views_of(const std::string& name) const;

 private:
  struct Place {
    std::string memory;  // the name of a value that is there
    std::string view;    // the name of a value that is the same tensor
  };
  void add(const std::string& name, const ProgramNode& node, const c10::FunctionSchema& schema);

  std::map<std::string, Place> places_;
};

// The names of the program's tensors in an argument.
std::vector<std::string> tensor_names_in(const ProgramArgument& argument);
// The argument that the call writes to: nullptr where it writes to none. Throws CheckpointError for a call
// that writes to several, or to one that is not its first argument.
const std::string* written_tensor(const ProgramNode& node, const c10::FunctionSchema& schema);

}  // namespace kindling
