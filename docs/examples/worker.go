// A worker: takes jobs of a queue over HTTP. go run worker.go http://127.0.0.1:7420 QUEUE
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func post(path, body string) []byte {
	answer, err := http.Post(os.Args[1]+"/api/v1/"+path, "application/octet-stream", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return text
}

func main() {
	for {
		taken := post("queues/"+os.Args[2]+"/take?wait=1s", "")
		if len(taken) == 0 { // no job came in time
			return
		}
		var job struct{ Lease, Body string }
		if json.Unmarshal(taken, &job) == nil {
			fmt.Println("working on", job.Body)
			post("leases/"+job.Lease+"/done", "done")
		}
	}
}
