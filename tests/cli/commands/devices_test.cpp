// `kindling devices` in a separate process that finds the stand-in for NVML first.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kindling/base/text.h"
#include "kindling/device/device.h"

namespace kindling {
namespace {

using Json = nlohmann::json;

// Cards of a machine without cards.
class DevicesCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (num_gpus() > 0) GTEST_SKIP() << "this machine has cards of its own";
  }

  // `variables`: "NAME=value NAME=value", for the program alone.
  static std::string run(const std::string& variables, const std::string& options = "") {
    const std::string command = "env -u CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH='" KINDLING_STAND_INS
                                "':\"$LD_LIBRARY_PATH\" " +
                                variables + " '" KINDLING_PROGRAM "' devices " + options;
    std::string output;
    std::FILE* pipe = ::popen(command.c_str(), "r");
    std::array<char, 4096> bytes{};
    while (const std::size_t got = std::fread(bytes.data(), 1, bytes.size(), pipe))
      output.append(bytes.data(), got);
    EXPECT_EQ(::pclose(pipe), 0) << command;
    return output;
  }

  static Json json(const std::string& variables = "") { return Json::parse(run(variables, "--json")); }

  // The lines that start with "| ", without those of the CPU.
  static std::vector<std::string> rows(const std::string& output) {
    std::vector<std::string> rows;
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("| ") && line.find("| cpu ") == std::string::npos) rows.push_back(line);
    return rows;
  }
};

TEST_F(DevicesCommand, DrawsATableOf100Columns) {
  const std::string output = run("");
  EXPECT_TRUE(output.starts_with("driver 580.95.05   CUDA 13.0   LibTorch 2.")) << output;
  EXPECT_EQ(rows(output),
            (std::vector<std::string>{"|  GPU | device  | name                           |  "
                                      "temp |       power |            memory | util |",
                                      "|    0 | -*      | NVIDIA H200                    |  41 "
                                      "C |   512/700 W |    70.0/140.0 GiB |  97% |",
                                      "|    1 | -*      | NVIDIA RTX 6000 Ada Generation |  33 "
                                      "C |    28/300 W |      0.5/48.0 GiB |   0% |",
                                      "|  GPU |     pid | process                              "
                                      "                       |            memory |",
                                      "|    0 |   31337 | /usr/bin/kindling\xEF\xBF\xBD                "
                                      "                          |         71168 MiB |",
                                      "|    0 |    4242 | -                                    "
                                      "                       |                 - |"}))
      << output;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);)
    EXPECT_EQ(display_width(line) == 100, line.starts_with("+") || line.starts_with("|")) << line;
  EXPECT_NE(output.find("| cpu     |"), std::string::npos) << output;
}

TEST_F(DevicesCommand, PrintsEverythingAsJson) {
  const Json devices = json();
  EXPECT_EQ(devices["driver_version"], "580.95.05");
  EXPECT_EQ(devices["cuda_version"], "13.0");
  ASSERT_EQ(devices["gpus"].size(), 2u);
  Json card = devices["gpus"][0];
  EXPECT_EQ(card["why_not_usable"], gpu_unavailable_reason());
  card.erase("why_not_usable");
  EXPECT_EQ(card, Json::parse(R"({
    "index": 0, "device": null, "usable": false, "name": "NVIDIA H200",
    "uuid": "GPU-1111aaaa-0000-4000-8000-000000000001", "pci_bus_id": "00000000:18:00.0",
    "memory_used_bytes": 75161927680, "memory_total_bytes": 150323855360, "temperature_celsius": 41,
    "power_watts": 512.3, "power_limit_watts": 700.0, "utilization_percent": 97,
    "processes": [{"pid": 31337, "name": "/usr/bin/kindling\ufffd", "memory_bytes": 74625056768},
                  {"pid": 4242, "name": null, "memory_bytes": null}]})"));
  EXPECT_TRUE(devices["gpus"][1]["processes"].empty());
  EXPECT_EQ(devices["cpu"]["device"], "cpu");
  EXPECT_GT(devices["cpu"]["num_cores"], 0);
  EXPECT_GT(devices["cpu"]["num_threads"], 0);
  EXPECT_GT(devices["cpu"]["memory_total_bytes"], devices["cpu"]["memory_used_bytes"]);
  EXPECT_EQ(devices["note"], nullptr);
  EXPECT_EQ(devices["cards"], devices["gpus"]);  // the deprecated name
}

TEST_F(DevicesCommand, ReportsWhyAGpuCannotBeUsed) {
  const std::string output = run("");
  EXPECT_NE(output.find("\n* GPU 1 cannot be used: " + gpu_unavailable_reason() + "\n"), std::string::npos)
      << output;
}

TEST_F(DevicesCommand, ShowsMissingReadingsAsDashesAndNull) {
  const Json card = json("KINDLING_STAND_IN_NVML=silent")["gpus"][1];
  for (const char* key : {"memory_used_bytes", "memory_total_bytes", "temperature_celsius", "power_watts",
                          "power_limit_watts", "utilization_percent", "processes"})
    EXPECT_TRUE(card.at(key).is_null()) << key;
  const auto lines = rows(run("KINDLING_STAND_IN_NVML=silent"));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(
      lines[1],
      "|    0 | -*      | NVIDIA H200                    |     - |           - |                 - |    - |");
  EXPECT_EQ(
      lines[4],
      "|    0 |       - | -                                                           |                 - |");
}

TEST_F(DevicesCommand, ReportsThatNoProcessUsesAGpu) {
  const std::string output = run("KINDLING_STAND_IN_NVML=idle");
  EXPECT_NE(output.find("\nno process uses a GPU\n"), std::string::npos) << output;
  EXPECT_EQ(rows(output).size(), 3u);
}

TEST_F(DevicesCommand, ReportsWhyThereAreNoReadings) {
  const Json without_driver = json("KINDLING_STAND_IN_NVML=no_driver");
  EXPECT_TRUE(without_driver["gpus"].empty());
  EXPECT_EQ(without_driver["note"], "no GPU can be used: " + gpu_unavailable_reason() +
                                        "; NVML: it does not start (Driver Not Loaded)");
  EXPECT_NE(run("KINDLING_STAND_IN_NVML=no_driver").find("\nno GPU can be used: "), std::string::npos);
  EXPECT_EQ(json("KINDLING_STAND_IN_NVML=no_cards")["note"],
            "no GPU can be used: the NVIDIA driver reports none");
}

}  // namespace
}  // namespace kindling
