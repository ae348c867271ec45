// Any bytes as a file of torch.export.save, and as the program and as the weights' list in one whose archive
// is right, so that what lies behind the CRC is reached. What opens must be readable.

#include <string>

#include "../support/torch_bytes.h"
#include "formats/pt2/pt2_file.h"
#include "kindling/base/error.h"

namespace {

using namespace kindling;

void read_pt2(std::string bytes) {
  try {
    const Pt2File file = Pt2File::of_bytes(std::move(bytes), "fuzz");
    for (std::size_t i = 0; i < file.num_storages(); ++i) {
      std::string values(file.storage_bytes(i), '\0');
      file.read_storage(i, values.data());
    }
  } catch (const Error&) {
    // Refused: the other good outcome.
  }
}

std::string archive_of(const std::string& model, const std::string& weights) {
  return torch_bytes::zip_of(
      {{.name = "x/archive_format", .bytes = "pt2"},
       {.name = "x/archive_version", .bytes = "0"},
       {.name = "x/models/model.json", .bytes = model},
       {.name = "x/data/weights/model_weights_config.json", .bytes = weights},
       {.name = "x/data/weights/weight_0", .bytes = std::string(48, '\1')},
       {.name = "x/data/constants/model_constants_config.json", .bytes = "{\"config\": {}}"}});
}

const std::string kEmptyModel =
    R"({"schema_version": {"major": 8, "minor": 0}, "range_constraints": {}, "graph_module": {"graph": {"nodes": [],
    "tensor_values": {}, "sym_int_values": {}}, "signature": {"input_specs": [], "output_specs": []}, "module_call_graph": []}})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  read_pt2(bytes);
  read_pt2(archive_of(bytes, "{\"config\": {}}"));
  read_pt2(archive_of(kEmptyModel, bytes));
  return 0;
}
