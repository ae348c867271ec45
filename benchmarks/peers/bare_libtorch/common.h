#pragma once

// What bare_loop.cpp and aoti_loop.cpp have in common: the options, the clock and the JSON lines of
// ../harness.py, and the models and batches of the step cases of ../workloads.py.

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace nn = torch::nn;
using torch::Tensor;
using Batch = torch::data::Example<>;

constexpr uint64_t kModelSeed = 0, kDataSeed = 1;

// --- Harness

struct Args {
  std::string name;
  int threads = 1;
  int repeats = 11;
  std::string precision = "fp32";
  bool gate = false;
  bool first_step = false;
};

inline Args parse(int argc, char** argv) {
  Args args;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--gate") {
      args.gate = true;
      continue;
    }
    if (option == "--first-step") {
      args.first_step = true;
      continue;
    }
    TORCH_CHECK(i + 1 < argc, option, " needs a value");
    const std::string value = argv[++i];
    if (option == "--case")
      args.name = value;
    else if (option == "--threads")
      args.threads = std::stoi(value);
    else if (option == "--repeats")
      args.repeats = std::stoi(value);
    else if (option == "--precision")
      args.precision = value;
    else
      TORCH_CHECK(false, "unknown option ", option);
  }
  return args;
}

inline double wall_seconds() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

inline double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

// Times the rounds between calls of tick(). The first one is not counted; Clock in ../harness.py is the same.
class Clock {
 public:
  explicit Clock(const Args& args) : repeats_(args.repeats), gate_(args.gate) {}

  int rounds() const { return kWarmup + repeats_; }

  void tick() {
    if (started_) {
      wall_.push_back(wall_seconds() - wall_start_);
      cpu_.push_back(cpu_seconds() - cpu_start_);
    }
    const int done = static_cast<int>(wall_.size());
    if (gate_ && kWarmup <= done && done < rounds()) {
      std::cout << "ready" << std::endl;
      std::string go;
      std::getline(std::cin, go);
    }
    started_ = true;
    wall_start_ = wall_seconds();
    cpu_start_ = cpu_seconds();
  }

  std::vector<double> wall() const { return {wall_.begin() + kWarmup, wall_.end()}; }
  std::vector<double> cpu() const { return {cpu_.begin() + kWarmup, cpu_.end()}; }

 private:
  static constexpr int kWarmup = 1;
  int repeats_;
  bool gate_;
  bool started_ = false;
  double wall_start_ = 0, cpu_start_ = 0;
  std::vector<double> wall_, cpu_;
};

inline std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "?";
}

struct Labels {
  std::string peer = "bare";
  std::string variant;
  std::optional<double> final_loss;
};

inline void report(const Args& args, const std::string& metric, const std::string& unit,
                   std::vector<double> values, const Labels& labels) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  const double median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  std::ostringstream loss;
  if (labels.final_loss)
    loss << std::setprecision(12) << *labels.final_loss;
  else
    loss << "null";
  std::printf(R"({"case": "%s", "variant": "%s", "peer": "%s", "threads": %d, "precision": "%s", )"
              R"("metric": "%s", "unit": "%s", "median": %.6f, "min": %.6f, "max": %.6f, )"
              R"("repeats": %zu, "final_loss": %s, "torch": "%s", "cpu_model": "%s"})"
              "\n",
              args.name.c_str(), labels.variant.c_str(), labels.peer.c_str(), args.threads,
              args.precision.c_str(), metric.c_str(), unit.c_str(), median, values.front(), values.back(), n,
              loss.str().c_str(), TORCH_VERSION, cpu_model().c_str());
  std::fflush(stdout);
}

inline void report_times(const Args& args, const Clock& clock, const std::string& unit, double per,
                         const Labels& labels) {
  auto scaled = [&](std::vector<double> seconds) {
    for (auto& t : seconds) t *= (unit.starts_with("us/") ? 1e6 : 1.0) / per;
    return seconds;
  };
  report(args, "cpu", unit, scaled(clock.cpu()), labels);
  report(args, "wall", unit, scaled(clock.wall()), labels);
}

// --- Step cases

struct StepCase {
  std::vector<int64_t> widths;
  int64_t steps;
};

inline const StepCase kStepTiny{{20, 64, 64, 1}, 1280};
inline const StepCase kStepDeep{std::vector<int64_t>(17, 64), 320};

inline std::vector<Batch> batches_of(const StepCase& step_case) {
  const int64_t features = step_case.widths.front(), outputs = step_case.widths.back();
  const int64_t batch_size = 32, n = step_case.steps * batch_size;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(kDataSeed);
  const auto x = torch::randn({n, features}, generator);
  const auto w = torch::randn({features, outputs}, generator);
  const auto noise = torch::randn({n, outputs}, generator);
  const auto y = torch::sin(x.matmul(w) / std::sqrt(features)) + 0.1 * noise;
  const auto xs = x.split(batch_size), ys = y.split(batch_size);
  std::vector<Batch> batches;
  for (int64_t i = 0; i < step_case.steps; ++i) batches.emplace_back(xs[i], ys[i]);
  return batches;
}

inline nn::Sequential mlp(const std::vector<int64_t>& widths) {
  torch::manual_seed(kModelSeed);
  nn::Sequential net;
  for (size_t i = 1; i < widths.size(); ++i) {
    net->push_back(nn::Linear(widths[i - 1], widths[i]));
    if (i + 1 < widths.size()) net->push_back(nn::ReLU());
  }
  return net;
}
