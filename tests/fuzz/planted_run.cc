#include "fuzz/planted_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>
#include <vector>

#include "crash/attempt_maker.h"
#include "format/header_text.h"
#include "fuzz/framed.h"

namespace deepfreeze {
namespace {

constexpr std::size_t kPlantsMax = 32;
constexpr std::size_t kPlantBytesMax = 1 << 20;
constexpr std::size_t kLeafBytesMax = 255;  // of Linux

const GenerationRecord kClaim{.run_id = std::string(kPlantedRunId),
                              .generation = 1,
                              .claimant = 5,
                              .resumed_from = {},
                              .wall_micros = 1};

struct Good {
  SimDisk disk;
  Manifest manifest;
  Good() {
    disk.plant(kRunFile, encode_run({.run_id = std::string(kPlantedRunId), .parent = {}}));
    disk.plant(generation_file_name(1), encode_generation(kClaim));
    const Point point{1, kGoodAttempt.step, 1, kGoodAttempt.attempt_id};
    manifest = save_attempt(disk, make_identity(std::string(kPlantedRunId), point)).value();
  }
};

const Good& good() {
  static const Good made;
  return made;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (auto at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

std::string spelt_out(std::string_view input) {
  std::string text(input);
  replace_all(text, "{run}", kPlantedRunId);
  replace_all(text, "{good}", attempt_dir_name(kGoodAttempt));
  replace_all(text, "{new}", attempt_dir_name(kNewAttempt));
  return text;
}

bool is_leaf(std::string_view leaf) {
  return !leaf.empty() && leaf.size() <= kLeafBytesMax && leaf != "." && leaf != ".." &&
         !leaf.contains('\0');
}

// The directories above `path`, outermost first, then itself.
std::vector<std::string_view> prefixes_of(std::string_view path) {
  std::vector<std::string_view> prefixes;
  for (auto slash = path.find('/'); slash != path.npos; slash = path.find('/', slash + 1)) {
    prefixes.push_back(path.substr(0, slash));
  }
  prefixes.push_back(path);
  return prefixes;
}

// Whether a file could have this path: on a real disk, no file replaces a directory or lies below a
// file.
bool has_room(const SimDisk& disk, std::string_view path) {
  const std::vector<std::string> names = disk.list_all();
  for (const std::string_view prefix : prefixes_of(path)) {
    const std::size_t slash = prefix.rfind('/');
    if (!is_leaf(slash == prefix.npos ? prefix : prefix.substr(slash + 1))) return false;
    const std::string directory = std::string(prefix) + '/';
    const bool is_whole = prefix.size() == path.size();
    const std::string in_the_way = is_whole ? directory : std::string(prefix);
    if (std::ranges::find(names, in_the_way) != names.end()) return false;
  }
  return true;
}

// "!cut 100" -> {"cut", "100"}
struct Order {
  std::string_view verb;
  std::string_view argument;

  explicit Order(std::string_view body) {
    const std::string_view line = body.substr(1, body.find('\n') - 1);
    const std::size_t space = line.find(' ');
    verb = line.substr(0, space);
    if (space != line.npos) argument = line.substr(space + 1);
  }
  [[nodiscard]] std::size_t number() const {
    std::size_t value = 0;
    std::from_chars(argument.data(), argument.data() + argument.size(), value);
    return value;
  }
};

void obey(SimDisk& disk, const std::string& path, const Order& order) {
  const std::string there = disk.contents(path).value_or("");
  if (order.verb == "cut") disk.plant(path, std::string_view(there).substr(0, order.number()));
  if (order.verb == "zero") disk.plant(path, std::string(order.number() % kPlantBytesMax, '\0'));
  if (order.verb == "flip") std::ignore = disk.flip_bit(path, order.number());
  if (order.verb == "copy") disk.plant(path, disk.contents(order.argument).value_or(""));
  if (order.verb == "gone") std::ignore = disk.remove_file(path);
  if (order.verb == "dir") std::ignore = disk.make_dir(path);
}

std::string header_and_zeros(std::string_view json) {
  const std::vector<std::byte> header = framed_header(json);
  std::string text(reinterpret_cast<const char*>(header.data()), header.size());
  return text.append(data_bytes_of(json) % kPlantBytesMax, '\0');
}

void plant_one(SimDisk& disk, const std::string& path, std::string_view body) {
  if (body.starts_with('!')) return obey(disk, path, Order(body));
  if (body.starts_with("\"kind\"")) return disk.plant(path, framed_record(body));
  if (body.starts_with(kHeaderPrefix)) return disk.plant(path, header_and_zeros(body));
  disk.plant(path, body);
}

}  // namespace

const SimDisk& good_run() { return good().disk; }
const Manifest& good_manifest() { return good().manifest; }

PlantedRun plant_run(std::string_view input) {
  PlantedRun run{.disk = good_run().clone()};
  const std::string good_directory = attempt_dir_name(kGoodAttempt);
  std::string text = "\n" + spelt_out(input);
  std::string_view rest = text;
  for (std::size_t count = 0; count < kPlantsMax; ++count) {
    const std::size_t begin = rest.find("\n@");
    if (begin == rest.npos) break;
    rest.remove_prefix(begin + 2);
    const std::string_view plant = rest.substr(0, rest.find("\n@"));
    const std::string path(plant.substr(0, plant.find('\n')));
    if (!has_room(*run.disk, path)) continue;
    plant_one(*run.disk, path, plant.substr(std::min(plant.size(), path.size() + 1)));
    if (path.starts_with(good_directory)) run.good_is_touched = true;
  }
  return run;
}

}  // namespace deepfreeze
