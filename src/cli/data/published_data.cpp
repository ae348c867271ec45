#include "cli/data/published_data.h"

namespace kindling {
namespace {

// The sums of downloads are those of TensorFlow Datasets (url_checksums), which other projects repeat. Those
// of unpacked files are listed where at least two projects publish the same.
const std::vector<PublishedData>& data_sets() {
  static const std::vector<PublishedData> kSets{
      {.name = "mnist",
       .url = "https://ossci-datasets.s3.amazonaws.com/mnist/",
       .files =
           {{.name = "train-images-idx3-ubyte",
             .sum = {47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
             .compressed = {9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"}},
            {.name = "train-labels-idx1-ubyte",
             .sum = {60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
             .compressed = {28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"}},
            {.name = "t10k-images-idx3-ubyte",
             .sum = {7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
             .compressed = {1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"}},
            {.name = "t10k-labels-idx1-ubyte",
             .sum = {10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
             .compressed = {4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"}}}},
      {.name = "fashion_mnist",
       .url = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
       .files =
           {{.name = "train-images-idx3-ubyte",
             .sum = {47040016},
             .compressed = {26421880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"}},
            {.name = "train-labels-idx1-ubyte",
             .sum = {60008},
             .compressed = {29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"}},
            {.name = "t10k-images-idx3-ubyte",
             .sum = {7840016},
             .compressed = {4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"}},
            {.name = "t10k-labels-idx1-ubyte",
             .sum = {10008},
             .compressed = {5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"}}}},
      {.name = "cifar10",
       .url = "https://www.cs.toronto.edu/~kriz/",
       .archive = "cifar-10-binary.tar.gz",
       .archive_sum = {170052171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
       .archive_folder = "cifar-10-batches-bin",
       .files = {{.name = "data_batch_1.bin",
                  .sum = {30730000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"}},
                 {.name = "data_batch_2.bin",
                  .sum = {30730000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"}},
                 {.name = "data_batch_3.bin",
                  .sum = {30730000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"}},
                 {.name = "data_batch_4.bin",
                  .sum = {30730000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"}},
                 {.name = "data_batch_5.bin",
                  .sum = {30730000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"}},
                 {.name = "test_batch.bin",
                  .sum = {30730000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"}}}},
      {.name = "cifar100",
       .url = "https://www.cs.toronto.edu/~kriz/",
       .archive = "cifar-100-binary.tar.gz",
       .archive_sum = {168513733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"},
       .archive_folder = "cifar-100-binary",
       .files = {{.name = "train.bin", .sum = {153700000}}, {.name = "test.bin", .sum = {30740000}}}}};
  return kSets;
}

}  // namespace

std::span<const PublishedData> published_data() { return data_sets(); }

}  // namespace kindling
