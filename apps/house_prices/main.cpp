// Predicts prices from a CSV file with numbers, categories and gaps, by cross-validation:
//
//   house_prices FOLDER

#include <kindling/kindling.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <string>
#include <vector>

namespace kd = kindling;
namespace fs = std::filesystem;

namespace {

// Writes 2,000 houses; 5 % of the rooms and ages are missing. The price has noise of standard deviation 10.
void write_houses(const fs::path& file) {
  const std::vector<std::string> places{"\"Bern, old town\"", "\"Bern, station\"", "Chur", "Thun"};
  const std::vector<double> worth{120, 60, 0, 30};
  std::mt19937 random(0);
  const auto number = [&](std::uint32_t end) { return random() % end; };
  const auto noise = [&] {  // a sum of twelve uniform numbers is close to normal
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(number(10'000)) / 10'000;
    return 10 * sum;
  };
  std::ofstream out(file);
  out << "house,rooms,age,place,garden,price\n";
  for (int i = 0; i < 2000; ++i) {
    const std::uint32_t rooms = 1 + number(8), age = number(100), place = number(4), garden = number(2);
    const double price = 50.0 * rooms + worth[place] + (garden == 1 ? 4.0 * rooms : 0) +
                         100 * std::exp(-static_cast<double>(age) / 30) + noise();
    const auto unless_missing = [&](std::uint32_t value) {
      return number(20) == 0 ? std::string() : std::to_string(value);
    };
    out << "h" << i << "," << unless_missing(rooms) << "," << unless_missing(age) << "," << places[place]
        << "," << (garden == 1 ? "yes" : "no") << "," << price << "\n";
  }
}

// Trains on all folds but one, and returns the root mean squared error on that one.
double train(const fs::path& folder, std::int64_t fold) {
  kd::TableDataOptions table{.file = folder / "houses.csv", .target = {"price"}};
  table.id = "house";
  table.folds = 5;
  table.fold = fold;
  kd::TableData data(table, {.batch_size = 64});

  torch::manual_seed(fold);
  const auto model = std::make_shared<kd::MlpRegressor>(kd::MlpRegressorOptions{.hidden = {32, 32}});
  const std::string name = "fold" + std::to_string(fold);
  const auto best =
      std::make_shared<kd::ModelCheckpoint>(kd::ModelCheckpointOptions{.dirpath = folder / name});
  kd::TrainerOptions options{.max_epochs = 60, .num_gpus = 1};
  options.callbacks = {best, std::make_shared<kd::EarlyStopping>(kd::EarlyStoppingOptions{.patience = 10})};
  options.optimizer = [](kd::ParameterGroups parameters) {
    return std::make_unique<kd::Adam>(std::move(parameters), kd::AdamOptions{.lr = 0.01});
  };
  kd::Trainer trainer(options);
  trainer.fit(model, data);

  kd::load_validated_weights(*model, best->best());
  // The file has the columns, their medians and scales, so that it can predict raw rows.
  kd::save_safetensors(kd::state_dict_with_transform(*model), folder / (name + ".safetensors"));
  return std::sqrt(trainer.validate(model, data).at("val_loss"));
}

void run(const fs::path& folder) {
  fs::create_directories(folder);
  if (!fs::exists(folder / "houses.csv")) write_houses(folder / "houses.csv");
  double squares = 0;
  for (std::int64_t fold = 0; fold < 5; ++fold) {
    const double error = train(folder, fold);
    squares += error * error;
    std::cout << "fold " << fold << ": error " << error << "\n";
  }
  std::cout << "error " << std::sqrt(squares / 5) << "\n";
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: house_prices FOLDER\n";
    return 2;
  }
  run(argv[1]);
} catch (const kd::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
