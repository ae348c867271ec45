#include "formats/torch/python_conversion.h"

#include <filesystem>

#include "kindling/base/json.h"

namespace kindling {

std::string conversion_in_python(const std::string& place, const PythonSource& source) {
  const std::filesystem::path file = std::filesystem::path(place).filename();
  const std::string in = json_string(file.string()),
                    out = json_string(std::filesystem::path(file).replace_extension(".safetensors").string());
  return std::string("convert it in Python") +
         (source.runs_code ? ", which runs code of the file, so only if you trust it: " : ": ") +
         "import torch, safetensors.torch; sd = torch.load(" + in +
         ", map_location=\"cpu\", weights_only=" + (source.runs_code ? "False" : "True") + ")" +
         source.suffix +
         "; dense = lambda t: t.dequantize() if t.is_quantized else t.to(torch.complex64) if t.is_complex() "
         "else t.to_dense(); safetensors.torch.save_file({name: "
         "dense(t).resolve_conj().resolve_neg().contiguous().clone() for name, t in sd.items() if "
         "torch.is_tensor(t)}, " +
         out + ")";
}

std::string quoted_key(std::string_view key) { return json_string(key.substr(0, 100)); }

}  // namespace kindling
