#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/images/exif.h"
#include "formats/images/image_codecs.h"

namespace kindling {
namespace {

// Zstandard repeats a byte up to 128 Ki times in four bytes; a pixel has at least one bit.
constexpr std::int64_t kMaxTiffPixelsPerByte = std::int64_t{1} << 18;

// libtiff reads whole strips and tiles, whatever part of them the image has.
constexpr tmsize_t kMaxTiffBlock = tmsize_t{1} << 30;

// The file in memory, and the first error that libtiff reports.
struct TiffState {
  std::string_view bytes;
  std::size_t at = 0;
  char message[256] = "";
};

TiffState& state_of(thandle_t handle) { return *static_cast<TiffState*>(handle); }

tmsize_t read_tiff(thandle_t handle, void* to, tmsize_t size) {
  TiffState& state = state_of(handle);
  if (state.at > state.bytes.size() || size < 0) return 0;
  const std::size_t count = std::min(static_cast<std::size_t>(size), state.bytes.size() - state.at);
  std::memcpy(to, state.bytes.data() + state.at, count);
  state.at += count;
  return static_cast<tmsize_t>(count);
}

tmsize_t write_no_tiff(thandle_t, void*, tmsize_t) { return 0; }

toff_t seek_tiff(thandle_t handle, toff_t offset, int whence) {
  TiffState& state = state_of(handle);
  if (whence == SEEK_CUR) offset += state.at;
  if (whence == SEEK_END) offset += state.bytes.size();
  return state.at = offset;
}

int close_tiff(thandle_t) { return 0; }

toff_t size_of_tiff(thandle_t handle) { return state_of(handle).bytes.size(); }

#if TIFFLIB_VERSION >= 20221213
int take_tiff_error(TIFF*, void* state, const char*, const char* format, std::va_list arguments) {
  char(&message)[256] = static_cast<TiffState*>(state)->message;
  if (message[0] == '\0') std::vsnprintf(message, sizeof message, format, arguments);
  return 1;
}

int ignore_tiff_warning(TIFF*, void*, const char*, const char*, std::va_list) { return 1; }

TIFF* open_tiff(TiffState& state) {
  TIFFOpenOptions* const options = TIFFOpenOptionsAlloc();
  if (options == nullptr) return nullptr;
  TIFFOpenOptionsSetErrorHandlerExtR(options, &take_tiff_error, &state);
  TIFFOpenOptionsSetWarningHandlerExtR(options, &ignore_tiff_warning, nullptr);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options, kMaxTiffBlock);
  TIFF* const tiff = TIFFClientOpenExt("image", "rm", &state, &read_tiff, &write_no_tiff, &seek_tiff,
                                       &close_tiff, &size_of_tiff, nullptr, nullptr, options);
  TIFFOpenOptionsFree(options);
  return tiff;
}
#else  // its handlers are those of the process
TIFF* open_tiff(TiffState& state) {
  TIFFSetErrorHandler(nullptr);
  TIFFSetWarningHandler(nullptr);
  return TIFFClientOpen("image", "rm", &state, &read_tiff, &write_no_tiff, &seek_tiff, &close_tiff,
                        &size_of_tiff, nullptr, nullptr);
}
#endif

template <class Number>
Number tag_of(TIFF* tiff, std::uint32_t tag) {
  Number value{};
  TIFFGetFieldDefaulted(tiff, tag, &value);
  return value;
}

// Returns what prevents the conversion to 8 bits without a choice of ours; empty: nothing.
std::string tiff_obstacle(TIFF* tiff) {
  const auto bits = tag_of<std::uint16_t>(tiff, TIFFTAG_BITSPERSAMPLE);
  const auto format = tag_of<std::uint16_t>(tiff, TIFFTAG_SAMPLEFORMAT);
  if (bits > 16 || (format != SAMPLEFORMAT_UINT && format != SAMPLEFORMAT_VOID))
    return "a TIFF file whose values are not integers of at most 16 bits without a sign";
  switch (tag_of<std::uint16_t>(tiff, TIFFTAG_PHOTOMETRIC)) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
    case PHOTOMETRIC_RGB:
    case PHOTOMETRIC_PALETTE:
    case PHOTOMETRIC_YCBCR:
      break;
    default:
      return "a TIFF file whose colors are neither grey nor RGB";
  }
  char text[1024] = "";
  return TIFFRGBAImageOK(tiff, text) != 0 ? "" : std::string("a TIFF file that libtiff refuses: ") + text;
}

// False without the tag: libtiff then takes the colors from the number of values.
bool is_grey(TIFF* tiff) {
  std::uint16_t colors = PHOTOMETRIC_RGB;
  TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &colors);
  return colors == PHOTOMETRIC_MINISBLACK || colors == PHOTOMETRIC_MINISWHITE;
}

// Returns what would cost far more than the image and its file; empty: nothing.
std::string tiff_excess(TIFF* tiff, const ImageSource& source) {
  const bool is_tiled = TIFFIsTiled(tiff) != 0;
  const auto most = 8 * static_cast<std::uint64_t>(source.options.max_pixels);
  if ((is_tiled ? TIFFTileSize64(tiff) : TIFFStripSize64(tiff)) > most)
    return "its strips or tiles are too large";
  std::uint64_t num_bytes = 0;
  const std::uint32_t count = is_tiled ? TIFFNumberOfTiles(tiff) : TIFFNumberOfStrips(tiff);
  for (std::uint32_t i = 0; i < count; ++i) {
    num_bytes += std::min<std::uint64_t>(TIFFGetStrileByteCount(tiff, i), source.bytes.size());
    if (num_bytes > 4 * source.bytes.size()) return "its strips or tiles have the same bytes";
  }
  return "";
}

// libtiff would multiply colors by an alpha that they are not multiplied by. Alpha is dropped.
void ignore_alpha(TIFF* tiff) {
  std::uint16_t count = 0;
  std::uint16_t* kinds = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) == 0 || count == 0) return;
  const std::vector<std::uint16_t> multiplied(count, EXTRASAMPLE_ASSOCALPHA);
  TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, count, multiplied.data());
}

}  // namespace

bool can_read_tiff() noexcept { return true; }

Image decode_tiff(const ImageSource& source) {
  TiffState state{.bytes = source.bytes};
  const auto refuse = [&] {
    refuse_image(source, "TIFF", state.message[0] == '\0' ? "libtiff cannot read it" : state.message);
  };
  const std::unique_ptr<TIFF, decltype(&TIFFClose)> tiff(open_tiff(state), &TIFFClose);
  if (!tiff) refuse();
  const auto width = tag_of<std::uint32_t>(tiff.get(), TIFFTAG_IMAGEWIDTH);
  const auto height = tag_of<std::uint32_t>(tiff.get(), TIFFTAG_IMAGELENGTH);
  if (width == 0 || height == 0) refuse();
  check_image_size(source, width, height, kMaxTiffPixelsPerByte);
  if (const std::string obstacle = tiff_obstacle(tiff.get()); !obstacle.empty())
    refuse_content(source, obstacle, "8 or 16 bits per value, grey, RGB or a palette");
  if (const std::string excess = tiff_excess(tiff.get(), source); !excess.empty())
    refuse_image(source, "TIFF", excess);
  const int orientation = tag_of<std::uint16_t>(tiff.get(), TIFFTAG_ORIENTATION);
  TIFFSetField(tiff.get(), TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT);
  ignore_alpha(tiff.get());
  std::vector<std::uint32_t> pixels(std::size_t{width} * height);
  if (TIFFReadRGBAImageOriented(tiff.get(), width, height, pixels.data(), ORIENTATION_TOPLEFT, /*stop=*/1) ==
      0)
    refuse();
  Image image{.width = width, .height = height, .channels = 3, .pixels = {}};
  image.pixels.reserve(3 * pixels.size());
  for (const std::uint32_t pixel : pixels)
    for (const std::uint32_t value : {TIFFGetR(pixel), TIFFGetG(pixel), TIFFGetB(pixel)})
      image.pixels.push_back(static_cast<std::uint8_t>(value));
  const std::int64_t wanted = source.options.channels;
  if (wanted == 1 || (wanted == 0 && is_grey(tiff.get()))) convert_to_grey(image);
  return upright(std::move(image), orientation);
}

}  // namespace kindling
