def run(loop: "EngineLoop", receive: Receive, send: Send) -> None:
    while True:
        message = receive(not loop.has_work)
        while message is not None:
            if type(message) is Stop:
                return
            answer = loop.handle(message)
            if answer is not None:
                send(answer)
            message = receive(not loop.has_work)
        send(loop.step())
