# A worker: takes jobs of a queue over HTTP. ruby worker.rb http://127.0.0.1:7420 QUEUE
require "json"
require "net/http"

URL, QUEUE = ARGV

def post(path, body = "")
  Net::HTTP.post(URI("#{URL}/api/v1/#{path}"), body).body
end

loop do
  taken = post("queues/#{QUEUE}/take?wait=1s")
  break if taken.nil? || taken.empty? # no job came in time
  job = JSON.parse(taken)
  begin
    puts "working on #{job["body"]}"
    post("leases/#{job["lease"]}/done", "done")
  rescue => error
    post("leases/#{job["lease"]}/fail", error.message)
  end
end
