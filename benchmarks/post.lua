-- wrk script: closed-loop single-text requests; prints one line: requests/s, then p50, p90, p99 and max in ms, then errors.
-- TEXTS names a file with a text in each line; a few built-in ones serve where it is not set.
local texts = {
  "Where is my card?", "I have been waiting for more than a week.", "How do I change my PIN?",
  "The payment shows twice on my statement, please help me to get the money back.", "Do you support Apple Pay?",
}
local file = os.getenv("TEXTS")
if file then
  texts = {}
  for line in io.lines(file) do texts[#texts + 1] = line end
end
local i = 0

local function quoted(s) return '"' .. s:gsub('\\', '\\\\'):gsub('"', '\\"'):gsub('\t', ' ') .. '"' end

function request()
  i = i % #texts + 1
  return wrk.format("POST", nil, { ["Content-Type"] = "application/json" }, '{"inputs":' .. quoted(texts[i]) .. '}')
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format("RESULT %.2f %.3f %.3f %.3f %.3f %d\n", summary.requests / (summary.duration / 1e6),
    latency:percentile(50) / 1000, latency:percentile(90) / 1000, latency:percentile(99) / 1000, latency.max / 1000,
    e.status + e.connect + e.read + e.timeout))
end
