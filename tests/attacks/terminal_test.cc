// Text from files ends up on terminals: no escape sequence of theirs gets there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/log.h"
#include "cli/test_run.h"
#include "fuzz/framed.h"
#include "restore/run_fixture.h"

namespace deepfreeze {
namespace {

namespace fs = std::filesystem;

// Clears the screen, by the two ways to begin a sequence; and other characters that steer a
// terminal.
const std::string kNasty =
    "\x1b[2J\xc2\x9b"
    "2J\a\b\r\x7f";

// A control character other than the end of a line: ASCII's, or U+0080 to U+009F.
bool steers(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : ' ');
    if ((byte < 0x20 && byte != '\n') || byte == 0x7f) return true;
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) return true;
  }
  return false;
}

std::string json_text(const std::string& text) { return nlohmann::json(text).dump(); }

FixtureSave nasty_save(std::uint64_t step, float value) {
  OwnedTensor complex = f32_tensor(kNasty, {value, 2});
  complex.spec.logical_dtype = kNasty;
  return {
      .step = step,
      .ranks = {{complex}},
      .tree = "{" + json_text(kNasty) + ":" + json_text(kNasty) + fmt::format(",\"n\":{}}}", step),
      .annotations = {.metrics = {{kNasty, 1}},
                      .tags = {{kNasty, kNasty}},
                      .environment = {{kNasty, kNasty}},
                      .parent = {}}};
}

class Terminal : public testing::Test {
 protected:
  Terminal() {
    set_log_sink([](std::string_view line) { EXPECT_FALSE(steers(line)) << line; });
    run_.save(nasty_save(1, 1));
    last_ = run_.save(nasty_save(2, 2));
  }
  ~Terminal() override { set_log_sink({}); }

  void expect_clean(const std::vector<std::string>& arguments) {
    const Answer answer = call(arguments);
    EXPECT_FALSE(steers(answer.out)) << arguments.front() << ": " << answer.out;
    EXPECT_FALSE(steers(answer.err)) << arguments.front() << ": " << answer.err;
    const Answer document = call_json(arguments);
    EXPECT_FALSE(steers(document.err)) << arguments.front() << ": " << document.err;
    EXPECT_FALSE(document.json().is_discarded()) << arguments.front();
  }
  void expect_every_verb_clean() {
    expect_clean({"ls", run_.text()});
    expect_clean({"log", run_.text()});
    expect_clean({"show", run_.text()});
    expect_clean({"show", run_.text(), kNasty});
    expect_clean({"show", run_.text(), "not there" + kNasty});
    expect_clean({"verify", run_.text()});
    expect_clean({"diff", run_.text() + "@1", run_.text() + "@2"});
    expect_clean({"export", run_.text(), (run_.path() / "out").string(), "--force"});
    expect_clean({"gc", run_.text(), "--keep-last", "9", "--dry-run"});
  }

  RunFixture run_{ParentPoint{.run = kNasty, .step = 1}};
  Manifest last_;
};

TEST_F(Terminal, GetsNoSequenceFromWhatIsStored) { expect_every_verb_clean(); }

TEST_F(Terminal, GetsNoSequenceFromTheNamesOfDamagedTensors) {
  flip_bit(run_.file_path(last_, last_.files.front().name), 8 * kPageBytes);
  expect_every_verb_clean();
}

TEST_F(Terminal, GetsNoSequenceFromRecordsThatAreRefused) {
  const std::string record =
      framed_record(R"("kind":)" + json_text(kNasty) + R"(,"format_version":1})");
  for (const fs::path& path :
       {run_.file_path(last_, "manifest.json"), run_.path() / "deepfreeze.json"}) {
    std::ofstream(path, std::ios::binary) << record;
    expect_every_verb_clean();
  }
}

}  // namespace
}  // namespace deepfreeze
