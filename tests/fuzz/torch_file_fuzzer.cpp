// Any bytes as a file of torch.save, a state dict, a module or an optimizer; as the pickle in one whose
// archive is right, so that what lies behind the CRC is reached; in a file of PyTorch before 1.6; and as the
// pickle and as the code of a TorchScript program. What opens must be readable: no value lies outside its
// storage.

#include <string>

#include "../support/torch_bytes.h"
#include "kindling/base/error.h"
#include "kindling/formats/torch_file.h"
#include "kindling/formats/torch_optimizer.h"

namespace {

using namespace kindling;

void read_torch_file(std::string bytes, const std::string& key) {
  try {
    const TorchFile file = TorchFile::of_bytes(std::move(bytes), "fuzz", key);
    for (const TorchTensor& tensor : file.tensors()) {
      std::string values(tensor.size_bytes(), '\0');
      file.read(tensor, values.data());
    }
  } catch (const Error&) {
    // Refused: the other good outcome.
  }
}

void read_torch_optimizer(std::string bytes, const std::string& key) {
  try {
    const TorchOptimizerFile optimizer = torch_optimizer_of_bytes(std::move(bytes), "fuzz", key);
    for (const TorchOptimizerEntry& entry : optimizer.state) {
      if (entry.number) continue;
      const TorchTensor& tensor = optimizer.values.tensors().at(entry.tensor);
      std::string values(tensor.size_bytes(), '\0');
      optimizer.values.read(tensor, values.data());
    }
  } catch (const Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read_torch_file(bytes, "");
  std::vector<torch_bytes::ZipPart> parts = torch_bytes::parts_of(bytes);
  for (const char* name : {"x/data/1", "x/data/2"}) parts.push_back({.name = name, .bytes = parts[1].bytes});
  const std::string whole = torch_bytes::zip_of(parts);
  for (const char* key : {"", "model"}) {
    read_torch_file(whole, key);
    read_torch_optimizer(whole, key);
  }
  using namespace torch_bytes;
  read_torch_file(old_torch_file_of(bytes), "");
  read_torch_file(script_file_of(bytes, kScriptCode), "");
  read_torch_file(
      script_file_of(pickle(script_module(text("w") + pickled_tensor() + text("b") + pickled_tensor())),
                     bytes),
      "");
  return 0;
}
