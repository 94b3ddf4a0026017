@echo off
rem What the Windows does at its first logon, and at each later one. A stage in which it stopped is not flown again: what
rem was written of it is told, and the page says that it stopped.
set FLIGHT=C:\flight
set TOOL=%FLIGHT%\package\ndkrocev2ctl.exe
if exist %FLIGHT%\prepared goto fly
mkdir %FLIGHT%
xcopy /e /i /y "%~dp0package" %FLIGHT%\package
xcopy /e /i /y "%~dp0newer" %FLIGHT%\newer
copy /y "%~f0" %FLIGHT%\fly.cmd
bcdedit /set testsigning on
rem The Linux guest's share takes guests, and signs nothing.
powershell -NoProfile -Command "Set-SmbClientConfiguration -EnableInsecureGuestLogons $true -RequireSecuritySignature $false -Force"
schtasks /create /f /tn flight /sc onlogon /rl highest /ru Administrator /it /tr %FLIGHT%\fly.cmd
echo yes>%FLIGHT%\prepared
shutdown /r /t 0
exit /b

:fly
for %%s in (imports load device bind loopback two-adapters storm surprise-removal own inherit share rping consumer smb upgrade uninstall) do call :stage %%s
echo flight: end>COM1
shutdown /s /t 0
exit /b

:stage
if exist %FLIGHT%\%1.told exit /b
if exist %FLIGHT%\%1.begun goto tell
echo yes>%FLIGHT%\%1.begun
rem After a stage that stopped the adapter may be here still.
%TOOL% uninstall
%TOOL% flight stage %1 --package %FLIGHT%\package --newer %FLIGHT%\newer --nics "Ethernet" "Ethernet 2" --share \\192.168.79.101\share --runner qemu --image declared --out %FLIGHT%\out
:tell
type %FLIGHT%\out\qemu-declared-%1.jsonl>COM1
echo yes>%FLIGHT%\%1.told
exit /b
