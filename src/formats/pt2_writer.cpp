#include "formats/pt2_writer.h"

#include <set>
#include <utility>

#include "base/error_kind.h"
#include "formats/program_json.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

const std::string kRoot = "model/";

bool is_constant_of(const ExportedProgram& program, const ProgramWeight& weight) {
  for (const ProgramInput& input : program.inputs)
    if (input.target == weight.name && input.kind != ProgramInput::Kind::user)
      return input.kind == ProgramInput::Kind::constant || !input.is_persistent;
  return false;
}

}  // namespace

// What the loader looks for, and nothing that it does not.
Pt2Writer::Pt2Writer(const Pt2Parts& parts) : program_(json_of(parts.program)) {
  archive_.add(kRoot + "archive_format", "pt2");
  archive_.add(kRoot + "archive_version", "0");
  archive_.add(kRoot + "byteorder", "little");
  archive_.add(kRoot + ".data/version", "6\n");
  archive_.add(kRoot + "models/model.json", program_);
  add_weights(parts, /*constants=*/false);
  add_weights(parts, /*constants=*/true);
  archive_.add(kRoot + "data/sample_inputs/model.pt", parts.examples);
  pieces_ = archive_.finish();
}

void Pt2Writer::add_weights(const Pt2Parts& parts, bool constants) {
  const std::string folder = kRoot + (constants ? "data/constants/" : "data/weights/"),
                    file = constants ? "tensor_" : "weight_";
  std::vector<const ProgramWeight*> chosen;
  std::vector<std::string> files(parts.storages.size());
  std::size_t number = 0;
  for (const ProgramWeight& weight : parts.weights) {
    if (is_constant_of(parts.program, weight) != constants) continue;
    chosen.push_back(&weight);
    std::string& name = files[weight.storage];
    if (!name.empty()) continue;  // tied weights
    name = file + std::to_string(number++);
    archive_.add(folder + name, parts.storages[weight.storage]);
  }
  std::string& config = constants ? constants_ : weights_;
  config = json_of(chosen, files);
  archive_.add(folder + (constants ? "model_constants_config.json" : "model_weights_config.json"), config);
}

void Pt2Writer::write(const std::filesystem::path& path) const {
  with_errors_as<CheckpointError>([&] { write_file_atomically(path, pieces_); });
}

}  // namespace kindling
