#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "cli/commands/program_run.h"
#include "kindling/device/device.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using BenchJson = nlohmann::json;

ProgramRun run_bench(std::vector<std::string> words) {
  words.insert(words.begin(), "bench");
  return run_program(std::move(words));
}

// Every line is an object; the last is the summary.
std::vector<BenchJson> lines_of(const ProgramRun& run) {
  EXPECT_EQ(run.exit_code, 0) << run.err;
  std::istringstream text(run.out);
  std::vector<BenchJson> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(BenchJson::parse(line));
  EXPECT_FALSE(lines.empty());
  return lines;
}

std::vector<BenchJson> results_of(const std::vector<BenchJson>& lines) {
  return {lines.begin(), lines.end() - 1};
}

void expect_common_fields(const std::vector<BenchJson>& lines, const std::string& bench) {
  for (const BenchJson& line : lines) {
    EXPECT_EQ(line["bench"], bench);
    for (const char* key : {"libtorch", "kindling", "cpu", "threads"}) EXPECT_TRUE(line.contains(key)) << key;
  }
  for (const BenchJson& result : results_of(lines)) {
    EXPECT_EQ(result["kind"], "result");
    for (const char* key : {"device", "device_name", "median_s", "min_s", "max_s", "repeats"})
      EXPECT_TRUE(result.contains(key)) << key;
    EXPECT_GT(result["median_s"], 0);
  }
  EXPECT_EQ(lines.back()["kind"], "summary");
  EXPECT_EQ(lines.back()["num_gpus"], num_gpus());
}

// Tags nest and close.
bool tags_nest(const std::string& xml) {
  static const std::regex tag("<(/?)([a-z]+)[^<>]*?(/?)>");
  std::vector<std::string> open;
  for (auto at = std::sregex_iterator(xml.begin(), xml.end(), tag); at != std::sregex_iterator(); ++at) {
    const std::smatch& found = *at;
    if (found[3].length() > 0) continue;
    if (found[1].length() == 0) {
      open.push_back(found[2]);
    } else {
      if (open.empty() || open.back() != found[2]) return false;
      open.pop_back();
    }
  }
  return open.empty();
}

const std::vector<std::string> kSmallMatmul{"matmul", "--max-n", "32", "--repeats", "2"};

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(BenchCommand, MatmulPrintsJsonLines) {
  const auto lines = lines_of(run_bench(with(kSmallMatmul, {"--json"})));
  expect_common_fields(lines, "matmul");
  int on_cpu = 0;
  for (const BenchJson& result : results_of(lines)) {
    const double n = result["n"], seconds = result["median_s"];
    EXPECT_NEAR(result["tflops"].get<double>(), 2 * n * n * n / seconds / 1e12, 1e-12);
    EXPECT_EQ(result["repeats"], 2);
    on_cpu += result["device"] == "cpu" ? 1 : 0;
  }
  EXPECT_EQ(on_cpu, 4);  // 16 and 32, in fp32 and bf16
  EXPECT_EQ(lines.back()["series"][0]["tf32"], "off");
  EXPECT_FALSE(lines.back()["series"][0]["library"].get<std::string>().empty());
  EXPECT_EQ(lines.back()["crossover"].is_null(), num_gpus() == 0);
}

TEST(BenchCommand, ReportsWhyThereIsNoGpu) {
  if (num_gpus() > 0) GTEST_SKIP() << "this machine has " << num_gpus();
  for (const std::string what : {"matmul", "transfer"}) {
    const ProgramRun run = run_bench(
        what == "matmul" ? kSmallMatmul : std::vector<std::string>{what, "--mib", "1", "--pieces", "8"});
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_NE(run.out.find("no GPU: " + gpu_unavailable_reason()), std::string::npos) << run.out;
    EXPECT_EQ(run.out.find("cuda:"), std::string::npos) << run.out;
  }
  const auto lines = lines_of(run_bench(with(kSmallMatmul, {"--json"})));
  EXPECT_EQ(lines.back()["why_no_gpu"], gpu_unavailable_reason());
  for (const BenchJson& result : results_of(lines)) EXPECT_EQ(result["device"], "cpu");
}

TEST(BenchCommand, LogVariantsAgree) {
  const auto lines = lines_of(run_bench({"log", "--json", "--repeats", "1"}));
  expect_common_fields(lines, "log");
  ASSERT_EQ(results_of(lines).size(), num_gpus() > 0 ? 8u : 4u);
  for (const BenchJson& result : results_of(lines)) {
    EXPECT_LE(result["largest_difference"], 1e-4);
    const bool one_at_a_time = result["variant"] == "one at a time to the host";
    const int moves = result["device"] == "cpu" ? 0 : one_at_a_time ? 1000 : 1;
    EXPECT_EQ(result["host_waits"], moves);
    EXPECT_EQ(result["device_to_host_copies"], moves);
  }
}

TEST(BenchCommand, PairRunsOnTheCpuWithoutTwoGpus) {
  if (num_gpus() > 1) GTEST_SKIP() << "this machine has " << num_gpus();
  const ProgramRun run = run_bench({"pair", "--n", "32", "--repeats", "3"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.out.find("fewer than two GPUs: " + gpu_unavailable_reason()), std::string::npos) << run.out;
  const auto lines = lines_of(run_bench({"pair", "--n", "32", "--repeats", "3", "--json"}));
  expect_common_fields(lines, "pair");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["where"], "one worker of one thread on the cpu");
  EXPECT_EQ(lines[1]["where"], "two workers of one thread each on the cpu");
  EXPECT_DOUBLE_EQ(lines[2]["speed_up"],
                   lines[0]["median_s"].get<double>() / lines[1]["median_s"].get<double>());
}

TEST(BenchCommand, TransferComparesOneCopyWithMany) {
  const auto lines = lines_of(run_bench({"transfer", "--mib", "1", "--pieces", "256", "--json"}));
  expect_common_fields(lines, "transfer");
  for (const BenchJson& result : results_of(lines)) {
    EXPECT_EQ(result["total_bytes"], 1 << 20);
    EXPECT_TRUE(result["num_copies"] == 1 || result["num_copies"] == 256);
    EXPECT_EQ(result["memory"] == "within the host", num_gpus() == 0);
  }
}

TEST(BenchCommand, WritesAChart) {
  const Scratch scratch;
  const std::string file = (scratch / "a=b.svg").string();
  const ProgramRun run = run_bench(with(kSmallMatmul, {"--svg", file}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::string svg = text_of(file);
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_TRUE(tags_nest(svg));
  EXPECT_NE(svg.find("cpu fp32"), std::string::npos);
  EXPECT_NE(svg.find("cpu bf16"), std::string::npos);
}

TEST(BenchCommand, PrintsATableWithDeviceLibTorchAndThreads) {
  const ProgramRun run = run_bench(with(kSmallMatmul, {"--threads", "1"}));
  EXPECT_NE(run.out.find(", 1 thread · LibTorch 2."), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("crossover, the n from which the GPU stays faster:"), std::string::npos) << run.out;
}

TEST(BenchCommand, RestoresTheNumberOfThreads) {
  const int before = at::get_num_threads();
  EXPECT_EQ(run_bench(with(kSmallMatmul, {"--threads", std::to_string(before + 1)})).exit_code, 0);
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(BenchCommand, RefusesInvalidRequestsWithExitCode2) {
  const auto refuses = [](std::vector<std::string> words, const std::string& text) {
    const ProgramRun run = run_bench(std::move(words));
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err.find(text), std::string::npos) << run.err;
  };
  refuses({}, "kindling bench: a command is missing");
  refuses({"matmul", "--repeats", "0"}, "--repeats is '0'; expected: a whole number from 1 to 1000");
  refuses({"matmul", "--time-budget", "soon"}, "--time-budget");
  refuses({"matmul", "--max-n", "8"}, "--max-n is '8'; expected: a whole number from 16 to ");
  refuses({"log", "--max-n", "32"}, "kindling bench log: there is no option '--max-n'");
  refuses({"transfer", "--mib", "1", "--pieces", "3"}, "--pieces 3: 1048576 bytes cannot be split");
  refuses({"matmul", "--svg", "/no/such/folder/a.svg"}, "there is no directory /no/such/folder");
}

}  // namespace
}  // namespace kindling
