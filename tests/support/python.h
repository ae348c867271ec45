#pragma once

#include <cstdlib>
#include <string>

namespace kindling {

// The Python of KINDLING_TORCH_PYTHON, else of the scripts, else on the PATH; empty: none has PyTorch.
inline std::string find_python_with_torch() {
  const char* set = std::getenv("KINDLING_TORCH_PYTHON");
  for (const std::string& python :
       {std::string(set == nullptr ? "" : set), std::string(KINDLING_VENV_PYTHON), std::string("python3")})
    if (!python.empty() && std::system((python + " -c 'import torch' >/dev/null 2>&1").c_str()) == 0)
      return python;
  return "";
}
// Searched for once, because that takes seconds.
inline const std::string& python_with_torch() {
  static const std::string python = find_python_with_torch();
  return python;
}

}  // namespace kindling
