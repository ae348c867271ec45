#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/images/exif.h"
#include "formats/images/image_codecs.h"
#include "formats/images/png_metadata.h"
#include "formats/images/stored_png.h"
#include "formats/zip/inflate.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

// Deflate compresses at most 1032 to 1, and a pixel has at least one bit.
constexpr std::int64_t kMaxPngPixelsPerByte = 1032 * 8;

// libpng reports errors by longjmp. The functions that call it have no objects with destructors, and all
// memory belongs to objects outside of them.
struct PngState {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const char* next = nullptr;
  std::size_t left = 0;
  bool is_rgb_wanted = false, is_mask = false;
  png_bytepp rows = nullptr;
  char message[128] = "";
  std::jmp_buf on_error;

  PngState() = default;
  ~PngState() { png_destroy_read_struct(&png, &info, nullptr); }
  PngState(const PngState&) = delete;
  PngState& operator=(const PngState&) = delete;
};

[[noreturn]] void handle_png_error(png_structp png, png_const_charp message) {
  auto* state = static_cast<PngState*>(png_get_error_ptr(png));
  std::strncpy(state->message, message, sizeof state->message - 1);
  std::longjmp(state->on_error, 1);
}

void ignore_png_warning(png_structp, png_const_charp) {}

void take_png_bytes(png_structp png, png_bytep out, std::size_t size) {
  auto* state = static_cast<PngState*>(png_get_io_ptr(png));
  if (size > state->left) png_error(png, "the file ends too early");
  std::memcpy(out, state->next, size);
  state->next += size;
  state->left -= size;
}

void create_png(PngState* state) {
  state->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, state, &handle_png_error, &ignore_png_warning);
  if (state->png != nullptr) state->info = png_create_info_struct(state->png);
}

// store_png_pixels() has checked them.
void skip_png_checksums(PngState* state) {
  png_set_crc_action(state->png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
  png_set_option(state->png, PNG_IGNORE_ADLER32, PNG_OPTION_ON);
}

void read_png_header(PngState* state) {
  png_set_read_fn(state->png, state, &take_png_bytes);
  png_set_user_limits(state->png, 0x7fffffff, 0x7fffffff);
  png_set_chunk_malloc_max(state->png, 8'000'000);
  // Skips all chunks but those of the pixels: texts and profiles may be large and are not used.
  png_set_keep_unknown_chunks(state->png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(state->png, state->info);
}

// 8 bits per channel, without alpha; grey or RGB. Of a mask 8 or 16 bits.
void prepare_png_rows(PngState* state) {
  if (state->is_mask) {
    png_set_packing(state->png);
  } else {
    png_set_scale_16(state->png);
    png_set_expand(state->png);
  }
  png_set_strip_alpha(state->png);
  if (state->is_rgb_wanted) png_set_gray_to_rgb(state->png);
  png_set_interlace_handling(state->png);
  png_read_update_info(state->png, state->info);
}

void read_png_rows(PngState* state) {
  png_read_image(state->png, state->rows);
  png_read_end(state->png, nullptr);
}

// Returns false if libpng has reported an error.
bool png_succeeds(PngState* state, void (*step)(PngState*)) {
  if (setjmp(state->on_error) != 0) return false;
  step(state);
  return true;
}

void refuse_color_mask(const ImageSource& source, const PngState& state) {
  const auto type = png_get_color_type(state.png, state.info);
  if (type == PNG_COLOR_TYPE_PALETTE || (type & PNG_COLOR_MASK_COLOR) == 0) return;
  throw DataError({.place = source.place,
                   .found = "the mask has colors (RGB)",
                   .wanted = "a class number per pixel: a grey PNG file, or one with a palette",
                   .remedy = "replace each color by its class number, for example with Pillow: "
                             "Image.fromarray(numbers.astype(\"uint8\")).save(\"mask.png\")"});
}

// Replaces 16-bit values by 8-bit ones.
void narrow_mask(const ImageSource& source, Image& mask) {
  const std::size_t count = mask.pixels.size() / 2;
  for (std::size_t i = 0; i < count; ++i) {
    if (mask.pixels[2 * i] != 0)
      throw DataError({.place = source.place,
                       .found = "the mask has 16 bits per pixel, and the value " +
                                std::to_string(mask.pixels[2 * i] * 256 + mask.pixels[2 * i + 1]),
                       .wanted = "values up to 255"});
    mask.pixels[i] = mask.pixels[2 * i + 1];
  }
  mask.pixels.resize(count);
}

Image decode(const ImageSource& source, PngState& state) {
  const std::string stored = has_libdeflate() ? store_png_pixels(source.bytes) : "";
  const std::string_view bytes = stored.empty() ? source.bytes : stored;
  state.next = bytes.data();
  state.left = bytes.size();
  state.is_rgb_wanted = source.options.channels == 3;
  const auto run = [&](void (*step)(PngState*)) {
    if (!png_succeeds(&state, step)) refuse_image(source, "PNG", state.message);
  };
  run(&create_png);
  if (state.info == nullptr) throw std::bad_alloc();
  if (!stored.empty()) run(&skip_png_checksums);
  run(&read_png_header);
  const auto width = static_cast<std::int64_t>(png_get_image_width(state.png, state.info));
  const auto height = static_cast<std::int64_t>(png_get_image_height(state.png, state.info));
  check_image_size(source, width, height, kMaxPngPixelsPerByte);
  if (state.is_mask) refuse_color_mask(source, state);
  run(&prepare_png_rows);

  Image image{
      .width = width, .height = height, .channels = png_get_channels(state.png, state.info), .pixels = {}};
  const bool is_wide = state.is_mask && png_get_bit_depth(state.png, state.info) == 16;
  const auto row_bytes = static_cast<std::size_t>(width * image.channels * (is_wide ? 2 : 1));
  if (png_get_rowbytes(state.png, state.info) != row_bytes || (image.channels != 1 && image.channels != 3))
    refuse_image(source, "PNG", "an unsupported pixel format");
  image.pixels.resize(row_bytes * static_cast<std::size_t>(height));
  std::vector<png_bytep> rows(static_cast<std::size_t>(height));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = image.pixels.data() + i * row_bytes;
  state.rows = rows.data();
  run(&read_png_rows);
  if (is_wide) narrow_mask(source, image);
  if (source.options.channels == 1 && image.channels == 3) convert_to_grey(image);
  return upright(std::move(image), png_orientation(source.bytes));
}

}  // namespace

bool can_read_png() noexcept { return true; }

Image decode_png(const ImageSource& source) {
  PngState state;
  return decode(source, state);
}

Image decode_png_mask(const ImageSource& source) {
  PngState state;
  state.is_mask = true;
  return decode(source, state);
}

std::string encode_png(const Image& image, const std::string& place,
                       const std::vector<std::uint8_t>& palette) {
  png_image header;
  std::memset(&header, 0, sizeof header);
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  if (!palette.empty()) {
    header.format = PNG_FORMAT_RGB_COLORMAP;
    header.colormap_entries = static_cast<png_uint_32>(palette.size() / 3);
  }
  const auto write_to = [&](void* out, png_alloc_size_t& size) {
    if (png_image_write_to_memory(&header, out, &size, 0, image.pixels.data(), 0,
                                  palette.empty() ? nullptr : palette.data()) == 0)
      throw Error({.place = place, .found = std::string("libpng reports: ") + header.message});
  };
  png_alloc_size_t size = 0;
  write_to(nullptr, size);
  std::string bytes(size, '\0');
  write_to(bytes.data(), size);
  bytes.resize(size);
  return bytes;
}

}  // namespace kindling
