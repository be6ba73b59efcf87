<?php
// A worker: takes jobs of a queue over HTTP. php worker.php http://127.0.0.1:7420 QUEUE
[, $url, $queue] = $argv;

function post(string $path, string $body = ''): string
{
    global $url;
    $options = ['method' => 'POST', 'header' => 'Content-Type: application/octet-stream', 'content' => $body];
    return file_get_contents("$url/api/v1/$path", false, stream_context_create(['http' => $options]));
}

while (($taken = post("queues/$queue/take?wait=1s")) !== '') { // empty: no job came in time
    $job = json_decode($taken, true);
    try {
        echo "working on {$job['body']}\n";
        post("leases/{$job['lease']}/done", 'done');
    } catch (Exception $error) {
        post("leases/{$job['lease']}/fail", $error->getMessage());
    }
}
