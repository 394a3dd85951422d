#include "fuzz/seeds.h"

#include <fstream>
#include <limits>
#include <sstream>

#include "attacks/attack.h"
#include "attacks/victim.h"
#include "format/header_fixture.h"
#include "format/scrub_record.h"
#include "format/tag_record.h"
#include "fuzz/corpus_text.h"
#include "link/frame.h"
#include "packed/packed_fixture.h"

namespace deepfreeze {
namespace {

using Inputs = std::vector<std::string>;

// Empty if there is none.
std::string read_source(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string golden(const std::string& name) {
  return read_source(std::string(DF_GOLDEN_DIR) + "/" + name);
}

void add_attacked(Inputs& inputs, const std::string& good, std::span<const Attack> attacks) {
  inputs.push_back(good);
  for (const Attack& attack : attacks) inputs.push_back(attacked(good, attack));
}

std::string json_of_header(const ShardHeader& header) {
  return json_of(encode_header(header)->bytes);
}

// Every dtype, ranks from 0 to 3, an empty tensor, two blocks.
ShardHeader many_tensors() {
  ShardHeader header{.identity = {.run_id = "0123456789abcdef"}};
  for (std::uint8_t i = 0; i <= static_cast<std::uint8_t>(DType::kF64); ++i) {
    TensorSpec spec{.key = "t" + std::to_string(i), .dtype = static_cast<DType>(i)};
    spec.shape.assign(i % 4, i == 5 ? 200 : 2);
    const std::uint64_t end = header.data_bytes + spec_bytes(spec).value();
    header.entries.push_back({.spec = std::move(spec), .extent = {header.data_bytes, end}});
    header.data_bytes = end;
  }
  header.entries.push_back(
      {.spec = {.key = "é\n", .shape = {3, 0}}, .extent = {header.data_bytes, header.data_bytes}});
  header.entries.push_back({.spec = {.key = "big", .shape = {70'000}},
                            .extent = {header.data_bytes, header.data_bytes + 70'000}});
  header.data_bytes += 70'000;
  header.block_crcs.assign(block_count(header.data_bytes), 0xabcdef01);
  header.annotations.metrics = {{"nan", std::numeric_limits<double>::quiet_NaN()},
                                {"inf", -std::numeric_limits<double>::infinity()},
                                {"zero", -0.0}};
  return header;
}

// The file of each is as long as its last tensor claims.
Inputs headers_that_do_not_fit_their_data() {
  const std::string good = json_of_header(small_header());
  Inputs inputs;
  for (const std::string_view place : {"[56,60]", "[49,53]", "[44,48]", "[48,51]", "[48,47]",
                                       "[0,4]", "[48,18446744073709551615]"}) {
    inputs.push_back(replaced(good, "[48,52]", place));
  }
  inputs.push_back(replaced(good, "[0,48]", "[4,52]"));
  inputs.push_back(replaced(good, "\"scale\"", "\"model.weight\""));
  for (const std::string_view blocks : {"", "deadbee", "deadbeefdeadbeef"}) {
    inputs.push_back(replaced(good, "deadbeef", blocks));
  }
  return inputs;
}

Inputs headers() {
  const std::string file = golden("rank-00001-of-00004-0-of-1.safetensors");
  Inputs inputs = {file, file.substr(0, 2000), json_of_header(small_header()),
                   json_of_header(many_tensors()),
                   json_of_header({.identity = {.run_id = "ffffffffffffffff"}})};
  add_attacked(inputs, victim_header(), header_attacks());
  for (std::string& input : headers_that_do_not_fit_their_data())
    inputs.push_back(std::move(input));
  return inputs;
}

Inputs manifests() {
  Manifest aborted = good_manifest();
  aborted.outcome = Outcome::kAborted;
  aborted.files.clear();
  Manifest largest = good_manifest();
  largest.point = {~0ULL, ~0ULL, ~0ULL, ~0ULL};
  largest.world_size = ~0U;
  largest.annotations = many_tensors().annotations;
  largest.annotations.parent = ParentPoint{.run = "../\n", .step = ~0ULL};
  Manifest twice = good_manifest();
  twice.files.push_back(twice.files.front());
  Inputs inputs = {golden("manifest.json"), encode_manifest(aborted), encode_manifest(largest),
                   encode_manifest(twice), replaced(victim_manifest(), "committed", "aborted")};
  add_attacked(inputs, victim_manifest(), manifest_attacks());
  return inputs;
}

Inputs generation_claims() {
  Inputs inputs = {golden("generation-00000003.json"),
                   encode_generation({.run_id = "0123456789abcdef", .generation = ~0ULL})};
  add_attacked(inputs, victim_claim(), claim_attacks());
  return inputs;
}

Inputs run_files() {
  Inputs inputs = {golden("deepfreeze.json")};
  add_attacked(inputs, victim_run_file(), run_file_attacks());
  return inputs;
}

Inputs given_tags() {
  const std::string good = encode_tags({.run_id = "0123456789abcdef",
                                        .attempt = kGoodAttempt,
                                        .number = 3,
                                        .wall_micros = 1'700'000'000'000'000,
                                        .tags = {{"lr", "3e-4"}, {"note", "\n"}}});
  Inputs inputs = {good, encode_tags({.run_id = "0123456789abcdef"})};
  inputs.push_back(replaced(good, attempt_dir_name(kGoodAttempt), "../.."));
  inputs.push_back(replaced(good, "\"lr\"", "\"l r\""));
  inputs.push_back(replaced(good, "\"3e-4\"", "3e-4"));
  return inputs;
}

Inputs scrub_memories() {
  const std::string good =
      encode_scrub({"0123456789abcdef",
                    {{kGoodAttempt, 1'700'000'000'000'000, true}, {kNewAttempt, -1, false}}});
  Inputs inputs = {good, encode_scrub({"0123456789abcdef", {}})};
  for (const std::string_view directory : {"../..", "", "step-000000000001"}) {
    inputs.push_back(replaced(good, attempt_dir_name(kGoodAttempt), directory));
  }
  inputs.push_back(replaced(good, "true", "1"));
  inputs.push_back(replaced(good, "1700000000000000", "1e99"));
  inputs.push_back(replaced(good, "\"checkpoints\":[", "\"checkpoints\":[{},"));
  return inputs;
}

Inputs json_texts() {
  Inputs inputs = {
      R"( {"a":[1,-2,0,-0.0,1.5e-3,18446744073709551615,-9223372036854775808],"b":{"c":null}} )",
      R"([true,false,[],{},"\"\\\/\b\f\n\r\t\u00e9\ud83e\uddca"])",
      "[1e999,1e-400,4.9e-324,1.7976931348623157e308]",
      R"({"a":1,"\u0061":2})",
      R"(["\ud800\u0041"])",
      R"(["\udc00\ud800"])",
      std::string("13\0\0\0", 5),
      "\xef\xbb\xbf[]",
      std::string(70, '[') + std::string(70, ']')};
  for (const std::string& text : manifests()) inputs.push_back(text);
  return inputs;
}

// A long name above many leaves, in a key.
std::string long_name_in_a_key() {
  std::string leaves = "0";
  for (int i = 0; i < 1000; ++i) leaves += ",0";
  const std::string name(2000, 'n');
  return R"({"$":"dict","v":[[{")" + name + "\":[" + leaves + "]},1]]}";
}

// Skipped as a number was, though no reader has a type for it: listed, and not checked.
std::string offset_of_no_type() {
  return R"({"$":"tensor","k":"m.w","view":{"shape":[1],"offset":)" + std::string(80, '4') + "}}";
}

Inputs trees() {
  return {long_name_in_a_key(),
          offset_of_no_type(),
          R"({"b":[1,-2.5e-3,"x"],"a":{"t":true,"n":null},"e":{},"l":[]})",
          R"([{"$":"int","v":"123456789012345678901234567890"},{"$":"float","v":"-inf"}])",
          R"([{"$":"bytes","v":"AP8="},{"$":"np","d":"<f4","v":"AACAPw=="}])",
          R"([{"$":"tuple","v":[1]},{"$":"set","v":["a"]},{"$":"frozenset","v":[]}])",
          R"([{"$":"dict","v":[[1,2]]},{"$":"odict","v":[["k",1.5]]},{"$":"counter","v":[]}])",
          R"({"$":"defaultdict","f":"list","v":[["k",[7]]]})",
          R"({"$":"complex","re":1.0,"im":{"$":"float","v":"nan"}})",
          R"([{"$":"size","v":[2,3]},{"$":"dtype","v":"float32"},{"$":"device","v":"cpu"}])",
          R"({"$":"tensor","k":"m.w","view":{"shape":[1],"offset":0},"class":"parameter"})",
          R"([{"$":"array","k":"m.w","d":"<U3"},{"$":"blob","k":"m.w"}])",
          R"([{"$":"object","t":"module","v":{"x":1}},{"$":"ext","t":"my.Type","v":[1]}])",
          R"({"$":"dict","v":[[{"$":"tuple","v":[1,"a"]},2],[true,0],[null,1]]})",
          R"({"$":"dict","v":[[{"$":"dict","v":[[{"long":[0,0,0,0]},1]]},2]]})",
          R"({"":{"a.b":1,"%~":2}})"};
}

// A message of each kind, alone and one after the other, and frames that break off.
Inputs link_frames() {
  const LinkAttempt attempt{.step = 7, .attempt_id = 0xaa};
  const Error error(ErrorCode::kNoSpace, "full", 28);
  const std::vector<LinkMessage> messages = {
      LinkHello{.run = "0123456789abcdef", .rank = 8},
      LinkPart{.attempt = attempt, .file = "f", .bytes = 9, .header = std::string(200, 'h')},
      LinkSealed{.attempt = attempt, .files = {{"a", 1}, {"b", 2}}},
      LinkFailed{.attempt = attempt, .error = error},
      LinkDecided{.attempt = attempt, .manifest = "{}"},
      LinkAsk{.attempt = attempt},
      LinkUnknown{.attempt = attempt},
      LinkGone{.attempt = attempt},
      LinkRead{.number = 1, .attempt = attempt, .file = "f", .offset = 2, .size = 3},
      LinkBytes{.number = 1, .file_bytes = 4, .bytes = "abc"},
      LinkError{.number = 1, .error = error},
      LinkPing{},
      LinkProtected{.attempt = attempt, .stage = ParityStage::kAll}};
  Inputs inputs;
  std::string all;
  for (const LinkMessage& message : messages) {
    inputs.push_back(to_frames(encode(message).value(), 64));
    inputs.push_back(encode(message)->bytes);
    all += inputs[inputs.size() - 2];
  }
  inputs.push_back(all);
  inputs.push_back(all.substr(0, all.size() / 2));
  inputs.push_back(std::string("\x41\0\0\0\x0a", 5));        // longer than a frame may be
  inputs.push_back(std::string("\x01\0\0\0\x8a", 5) + "a");  // goes on, and is not full
  inputs.push_back(std::string("\xff\xff\xff\xff\xff", 5));
  return inputs;
}

// Packed blocks behind the size of their plain bytes, whole ones and cut ones; a packed file.
Inputs packed_blocks() {
  const DataFile file = mixed_file({.weights = 2'000, .noise = 200, .zeros = 1'000});
  Inputs inputs = {as_text(packed_bytes_of(file)), std::string("\x10\0\x02", 3),
                   std::string("\x08\0\x00\x01\x07", 5)};
  Packer packer = Packer::make().value();
  for (const std::size_t element : {1U, 2U, 4U, 8U}) {
    for (const std::size_t bytes : {std::size_t{100}, std::size_t{2'003}}) {
      const auto plain = std::span(file.data).first(bytes);
      const std::size_t size = bytes - 1;  // as the target counts
      std::string input = {static_cast<char>(size), static_cast<char>(size >> 8U)};
      input += as_text(packer.pack(plain, element));
      inputs.push_back(input);
      inputs.push_back(input.substr(0, input.size() / 2));
    }
  }
  return inputs;
}

Inputs small_texts() {
  return {attempt_dir_name(kGoodAttempt),
          attempt_dir_name({~0ULL, ~0ULL}),
          sealed_file_name({}),
          part_file_name({.rank = 1, .world_size = 2}),
          generation_file_name(3),
          generation_file_name(~0ULL),
          "rank-0000000000-of-00001-0-of-1.safetensors",
          "rank-00000-of-00001-00-of-1.safetensors",
          "step-7-00000000000000aa",
          "step-0000000000007-00000000000000aa",
          "generation-000000003.json",
          "..",
          "a/../b",
          "a//b",
          "deadbeef",
          "0123456789abcdef",
          "F8_E4M3",
          "AP8=",
          "Zm9vYmFy",
          "Zg==",
          "é🧊\xed\xa0\x80",
          std::string(129, 'x')};
}

Inputs own_seeds(std::string_view target) {
  if (target == "manifest") return manifests();
  if (target == "claim") return generation_claims();
  if (target == "run_file") return run_files();
  if (target == "scrub") return scrub_memories();
  if (target == "tags") return given_tags();
  if (target == "json") return json_texts();
  if (target == "tree") return trees();
  if (target == "link") return link_frames();
  if (target == "packed") return packed_blocks();
  if (target == "small_parsers") return small_texts();
  if (target == "run") return run_seeds();
  if (target == "attempt") return attempt_seeds();
  return headers();
}

}  // namespace

Seeds seeds_of(std::string_view target) {
  const std::string path = std::string(DF_CORPUS_DIR) + "/" + std::string(target) + ".txt";
  return {.own = own_seeds(target), .found = parse_corpus(read_source(path))};
}

}  // namespace deepfreeze
